"""The webhooks of the image kinds: gates, defaults, and errors as recorded from OpenKruise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.api.kind import KindDefinition
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.features.imagepull.webhooks import handlers
from app.kube.admission import Handler
from app.kube.clock import SystemClock
from app.manager.gates import parse_gates
from tests.admission.recorded import cases
from tests.admission.writing import ALPHA, BETA, written

Json = dict[str, Any]
ON = "ImagePullJobGate=true"
KINDS = {"imagepulljob": IMAGE_PULL_JOB, "imagelistpulljob": IMAGE_LIST_PULL_JOB, "nodeimage": NODE_IMAGE}


def of(kind: KindDefinition, gates: str = ON) -> list[Handler]:
    found = handlers(SystemClock(), parse_gates(gates).enabled)
    return [one for one in found if one.webhook.path.endswith(f"-{kind.kind.lower()}")]


def words(message: str) -> str:
    """Return the error message without the name of the webhook."""
    return message.partition("denied the request: ")[2] or message


@pytest.mark.behaviour("IMG-4", "IMG-5", "IMG-6", "IMG-7", "IMG-8", "IMG-9", "IMG-10", "IMG-11", "IMG-12")
@pytest.mark.parametrize("name", KINDS)
def test_recorded_objects_get_the_recorded_answers(name: str) -> None:
    kind = KINDS[name]
    for case in cases(name):
        manifest = case["manifest"]
        made = written(kind, of(kind), manifest)
        assert (made.obj is not None) is case["ok"], (manifest, made.message)
        if made.obj is None:
            assert words(case["message"]) in made.message or " is invalid: " in made.message
            continue
        assert spec_of(made.obj) == spec_of(case["created"]), manifest
        update = case.get("update")
        if not update or "modified" in update["message"] or "not found" in update["message"]:
            continue
        changed = written(kind, of(kind), {**manifest, "spec": update["manifest"]}, made.obj)
        assert (changed.obj is not None) is update["ok"], (manifest, update, changed.message)
        if changed.obj is not None:
            assert spec_of(changed.obj) == spec_of(update["result"]), (manifest, update)
        else:
            assert words(update["message"]) in changed.message or " is invalid: " in changed.message


def spec_of(obj: Json) -> Json:
    """Return the spec of an object without timestamps."""
    spec: Json = json.loads(json.dumps(obj.get("spec") or {}))
    for image in (spec.get("images") or {}).values() if isinstance(spec.get("images"), dict) else ():
        for tag in image["tags"]:
            tag.pop("createdAt", None)
    return spec


def job(version: str = BETA, **spec: Any) -> Json:
    return {
        "apiVersion": version,
        "kind": "ImagePullJob",
        "metadata": {"name": "warm", "namespace": "default"},
        "spec": {"image": "nginx", "completionPolicy": {}, **spec},
    }


@pytest.mark.behaviour("IMG-4")
@pytest.mark.parametrize(("version", "finalizers"), [(ALPHA, ["apps.kruise.io/deletion-protection"]), (BETA, None)])
def test_jobs_get_defaults_and_those_in_v1alpha1_a_finalizer(version: str, finalizers: list[str] | None) -> None:
    made = written(IMAGE_PULL_JOB, of(IMAGE_PULL_JOB), job(version))
    assert made.obj is not None
    assert made.obj["spec"] == {
        "image": "nginx",
        "completionPolicy": {"type": "Always"},
        "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 3},
        "imagePullPolicy": "IfNotPresent",
    }
    assert made.obj["metadata"].get("finalizers") == finalizers
    again = written(IMAGE_PULL_JOB, of(IMAGE_PULL_JOB), made.obj, made.obj)
    assert again.obj == made.obj


@pytest.mark.behaviour("IMG-7", "IMG-20")
@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("a" * 64, f"invalid repository name ({'a' * 64}), cannot specify 64-byte hexadecimal strings"),
        ("UPPER/x", "invalid reference format: repository name must be lowercase"),
        ("Nginx:1", "invalid reference format: repository name must be lowercase"),
        ("r.io/" + "a" * 251, "repository name must not be more than 255 characters"),
        ("nginx@sha256:" + "0" * 63, "invalid checksum digest length"),
        ("nginx@sha256:" + "A" * 64, "invalid checksum digest format"),
        ("nginx@md5:" + "0" * 32, "unsupported digest algorithm"),
    ],
)
def test_invalid_images_are_refused_in_the_words_of_the_parser(image: str, why: str) -> None:
    made = written(IMAGE_PULL_JOB, of(IMAGE_PULL_JOB), job(image=image))
    assert made.message.endswith(f": invalid image {image}: {why}")


@pytest.mark.behaviour("IMG-8")
@pytest.mark.parametrize(
    ("parallelism", "why"),
    [("1_0", "invalid syntax"), ("9" * 19, "value out of range"), ("9" * 40, "value out of range"), ("+5", "")],
)
def test_a_string_for_parallelism_is_parsed_as_in_go(parallelism: str, why: str) -> None:
    made = written(IMAGE_PULL_JOB, of(IMAGE_PULL_JOB), job(parallelism=parallelism))
    said = f'parallelism must be a valid integer: strconv.ParseInt: parsing "{parallelism}": {why}'
    assert made.message.endswith(said) if why else made.message == ""


@pytest.mark.behaviour("IMG-2")
@pytest.mark.parametrize(
    ("name", "gates", "missing"),
    [
        ("imagepulljob", "", "ImagePullJobGate"),
        ("imagepulljob", "ImagePullJobGate=true,KruiseDaemon=false", "KruiseDaemon"),
        ("imagepulljob", "PreDownloadImageForInPlaceUpdate=true", ""),
        ("imagelistpulljob", "", "ImagePullJobGate"),
        ("nodeimage", "", ""),
        ("nodeimage", "KruiseDaemon=false", "KruiseDaemon"),
    ],
)
def test_a_disabled_gate_is_named(name: str, gates: str, missing: str) -> None:
    kind = KINDS[name]
    accepted = next(case["manifest"] for case in cases(name) if case["ok"])
    made = written(kind, of(kind, gates), accepted)
    if not missing:
        assert made.message == ""
        return
    assert made.message.startswith(f"feature-gate {missing} is not enabled; start the manager with --feature-gates=")
    way = made.message.partition("--feature-gates=")[2].partition(" ")[0]
    assert written(kind, of(kind, f"{gates},{way}".strip(",")), accepted).message == ""
    assert made.code == 403


@pytest.mark.behaviour("IMG-10")
def test_an_empty_list_of_pull_secrets_differs_from_none() -> None:
    stored = written(IMAGE_PULL_JOB, of(IMAGE_PULL_JOB), job()).obj
    assert stored is not None
    changed = {**stored, "spec": {**stored["spec"], "pullSecrets": []}}
    assert "spec.pullSecrets is immutable" in written(IMAGE_PULL_JOB, of(IMAGE_PULL_JOB), changed, stored).message


@pytest.mark.behaviour("IMG-2")
def test_deletions_proceed_with_the_gate_off() -> None:
    stored = {**job(), "spec": {"image": "", "completionPolicy": {}}}
    stored["metadata"]["finalizers"] = ["apps.kruise.io/deletion-protection"]
    freed = {**stored, "metadata": {"name": "warm", "namespace": "default"}}
    assert written(IMAGE_PULL_JOB, of(IMAGE_PULL_JOB, ""), freed, stored).obj is not None


@pytest.mark.behaviour("IMG-46")
def test_recorded_openkruise_objects_are_accepted_unchanged() -> None:
    path = Path(__file__).parents[2] / "data" / "openkruise" / "13-node-agent.json"
    by_kind = {kind.kind: kind for kind in KINDS.values()}
    for item in json.loads(path.read_text("utf-8"))["items"]:
        if kind := by_kind.get(item["kind"]):
            labeled = {**item, "metadata": {**item["metadata"], "labels": {"a": "b"}}}
            found = written(kind, of(kind), labeled, item)
            assert found.message == ""
            assert found.obj is not None
            assert found.obj["spec"] == item["spec"]
