"""Commands print text from other users' objects without sending control sequences to the terminal."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from app.cli.main import app
from app.cli.terminal import written
from app.framework.commands import LONGEST_CELL, table
from app.kube.text import printable
from tests.cli.answers import Answers
from tests.cli.test_every_command import OBJECTS, READING, STORED, Command, by_name, one_sentence, typed
from tests.kit.objects import owner_of, pod_json

#: A new line, a window title, an erased screen, a one-byte color code, and right-to-left text.
HOSTILE: Final = "x\nFORGED line\x1b]0;mine\x07\x1b[2J\x9b31m\u202eevil\u2028y"
TIME: Final = "2026-01-01T00:00:00Z"
STATUS: Final[dict[str, Any]] = {
    "phase": HOSTILE,
    "message": HOSTILE,
    "currentRevision": HOSTILE,
    "updateRevision": HOSTILE,
    "lastScheduleTime": HOSTILE,
    "observedGeneration": 1,
    "conditions": [
        {"type": kind, "status": "True", "reason": HOSTILE, "message": HOSTILE, "lastTransitionTime": TIME}
        for kind in (HOSTILE, "FailedScale", "FailedUpdate", "Progressing", "FailedCreatePod", "SubsetFailure")
    ],
    "subsetStatuses": [{"name": HOSTILE, "replicas": 1, "missingReplicas": 1, "conditions": []}],
    "containerRecreateStates": [{"name": HOSTILE, "phase": HOSTILE, "message": HOSTILE}],
}


def _pod(owner: dict[str, Any], number: int) -> dict[str, Any]:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": HOSTILE}}
    ended = {"terminated": {"reason": HOSTILE, "message": HOSTILE, "exitCode": 1}}
    container = {"name": "main", "image": HOSTILE, "state": waiting, "lastState": ended, "restartCount": 3}
    conditions = [
        {"type": kind, "status": "False", "reason": HOSTILE, "message": HOSTILE}
        for kind in ("Ready", "PodScheduled", "InPlaceUpdateReady", HOSTILE)
    ]
    annotations = ("kruise.io/related-pub", "apps.kruise.io/matched-workloadspread", "kruise.io/sidecarset-hash")
    return pod_json(
        f"pod-{number}",
        namespace="default",
        resourceVersion="1",
        labels={"app": "web", "controller-revision-hash": HOSTILE},
        annotations=dict.fromkeys(annotations, HOSTILE),
        ownerReferences=[owner_of(owner)],
        node=HOSTILE,
        phase="Pending",
        conditions=conditions,
        spec={"containers": [{"name": "main", "image": HOSTILE}]},
        status={"reason": HOSTILE, "containerStatuses": [container]},
    )


def _world() -> dict[str, Any]:
    found = deepcopy(STORED)
    for stored in found.values():
        stored["metadata"]["annotations"] = {"kubernetes.io/change-cause": HOSTILE, "note": HOSTILE}
        stored["status"] = deepcopy(STATUS)
        if stored["kind"] == "AdvancedCronJob":
            stored["status"]["active"] = [{"apiVersion": "v1", "kind": HOSTILE, "name": HOSTILE}]
    pods = [_pod(stored, number) for number, stored in enumerate(STORED.values())]
    found |= {f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}": pod for pod in pods}
    found["/api/v1/namespaces/default/pods"] = {"metadata": {"resourceVersion": "1"}, "items": pods}
    for path, stored in list(found.items()):
        listed = found.setdefault(path.rpartition("/")[0], {"metadata": {"resourceVersion": "1"}, "items": []})
        if "items" in listed and "items" not in stored and stored not in listed["items"]:
            listed["items"].append(stored)
    return found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Write the kubeconfig of a cluster whose objects contain terminal control sequences."""
    server = Answers(_world())
    yield server.kubeconfig(tmp_path_factory.mktemp("hostile"))
    server.close()


def obeyed(text: str) -> list[str]:
    return [one for one in text if not (one.isprintable() or one in "\n\t")]


def forged(text: str) -> list[str]:
    """Return the lines that a user would take for our output."""
    return [line for line in text.splitlines() if line.lstrip("- ").startswith("FORGED")]


@by_name(READING)
@pytest.mark.parametrize(("kind", "path"), OBJECTS, ids=[kind for kind, _ in OBJECTS])
@pytest.mark.behaviour("CLI-18", "CLI-22")
def test_object_contents_are_printed_as_data(command: Command, kind: str, path: str, hostile: str) -> None:
    name = STORED[path]["metadata"]["name"]
    beside = ("--no-watch",) if "--watch" in command.options else ()
    for output in ("text", "json", "yaml"):
        result = typed(*command.path, kind, name, *beside, "-o", output, "--kubeconfig", hostile)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert obeyed(result.stdout + result.stderr) == []
        if output == "text":
            assert forged(result.stdout + result.stderr) == []
        elif result.exit_code == 0:
            assert result.stderr == ""
            data = json.loads(result.stdout) if output == "json" else yaml.safe_load(result.stdout)
            assert isinstance(data, dict | list)
        else:
            assert kind in one_sentence(result, 1).lower()


@pytest.mark.behaviour("CLI-22")
@pytest.mark.parametrize(
    "words",
    [
        ("rollout", "status"),
        *(("explain", "pod", f"pod-{number}") for number in range(len(STORED))),
        ("rollout", "status", "clone/web", "--no-watch"),
    ],
    ids=" ".join,
)
def test_control_characters_are_escaped(words: tuple[str, ...], hostile: str) -> None:
    result = typed(*words, "-n", "default", "--kubeconfig", hostile)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert obeyed(result.stdout + result.stderr) == forged(result.stdout + result.stderr) == []
    assert "FORGED" in result.stdout + result.stderr


@pytest.mark.behaviour("CLI-22")
def test_a_reviewed_manifest_cannot_inject_output(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": HOSTILE, "annotations": {HOSTILE: HOSTILE}, "labels": {"a": HOSTILE}},
        "spec": {"containers": [{"name": HOSTILE, "image": HOSTILE, "env": [{"name": HOSTILE, "value": HOSTILE}]}]},
    }
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod), "utf-8")
    for output in ("text", "json"):
        result = CliRunner().invoke(app, ["review", str(file), "-o", output])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert obeyed(result.stdout + result.stderr) == []


@pytest.mark.behaviour("CLI-22")
@pytest.mark.parametrize("output", ["json", "yaml"])
def test_data_is_printed_unchanged(output: Any) -> None:
    data = {"message": HOSTILE + "\U000e0041é\u200d", "plain": "é"}
    text = written(data, output)
    assert obeyed(text) == []
    assert (json.loads(text) if output == "json" else yaml.safe_load(text)) == data


@pytest.mark.behaviour("CLI-22")
def test_text_keeps_its_lines_without_control_sequences() -> None:
    assert printable("a\tb\nc é …") == "a\tb\nc é …"
    spaces = "".join(one for one in map(chr, range(0x110000)) if unicodedata.category(one) == "Zs")
    assert printable(spaces) == spaces
    assert printable("a\rb\x9bc\U000e0041") == "a\\u000db\\u009bc\\udb40\\udc41"


@pytest.mark.behaviour("CLI-22")
def test_a_long_cell_has_a_maximum_width() -> None:
    shown = table([("NAME", "SAID"), ("x" * 1_000_000, "a\nb")])
    assert len(shown.splitlines()) == 2
    assert max(map(len, shown.splitlines())) < LONGEST_CELL + 100
