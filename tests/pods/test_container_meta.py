from __future__ import annotations

import json
from typing import Any

import pytest

from app.api import names
from app.daemon.meta_plan import outdated
from app.kube.hashes import deep_hash
from app.pods import container_meta
from app.pods.container_meta import LONGEST_OF_POD, env_hash, hash_of_env, plain_hash, runtime_meta
from app.pods.inplace.eligibility import blocked_on_pod
from app.pods.inplace.steps import RefreshAction, refresh
from tests.pods.inplace.pods import NOW, begun, container, env_from, patched, pod, possible, raw_pod, template

CFG = container("main", env=[env_from("annotations", "cfg")])


@pytest.mark.behaviour("PM-137", "PM-138")
def test_container_hashes_match_known_values() -> None:
    assert plain_hash("test_container", "foo/image:v1") == 2386938832
    assert plain_hash("main", "nginx:1.14.2") == 2693376322
    assert deep_hash(b"null") == 86995377
    assert deep_hash(b'[{"name":"e2","value":"foo"}]') == 2053173458


@pytest.mark.behaviour("PM-138")
@pytest.mark.parametrize(("env", "annotations", "known"), [
    ([], {}, 86995377),
    ([env_from("annotations", "cfg")], {"cfg": "1"}, 2095859147),
    ([env_from("annotations", "cfg", "e2")], {"cfg": "foo"}, 2053173458),
    ([{"name": "CFG", "value": "1"}], {}, 86995377),
    ([env_from("annotations", "cfg"), env_from("annotations", "cfg")], {"cfg": "1"}, 2095859147),
    ([env_from("annotations", "old", "e2"), env_from("annotations", "cfg", "e2")], {"cfg": "foo"}, 2053173458),
    ([env_from("annotations", "cfg", "SIDECARSET_VERSION")], {"cfg": "1"}, 86995377),
    ([{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], {}, 86995377),
])  # fmt: skip
def test_the_env_hash_follows_the_pods_metadata(env: Any, annotations: Any, known: int) -> None:
    found = pod(raw_pod(template(container("main", env=env)), annotations=annotations))
    assert env_hash(found.spec.containers[0], found) == known


@pytest.mark.behaviour("PM-137", "PM-138", "MGR-164")
def test_long_images_and_annotations_are_not_printed_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of variables may read one annotation of 256 KB: together they have a gigabyte."""

    def printed(data: bytes) -> int:
        raise AssertionError(f"{len(data)} bytes are hashed")

    def hashed(value: str) -> int:
        env = [env_from("annotations", "cfg", f"V{number}") for number in range(100)]
        found = pod(raw_pod(template(container("main", env=env)), annotations={"cfg": value}))
        known = env_hash(found.spec.containers[0], found)
        # The agent reads as many copies from the process.
        assert hash_of_env({f"V{number}": value[:9_000] + value[9_000:] for number in range(100)}) == known
        return known

    monkeypatch.setattr(container_meta, "deep_hash", printed)
    assert 0 < hashed("x" * 10_000) != hashed("x" * 9_999 + "y") > 0
    assert plain_hash("main", "x" * 2_000) == -1


def meta(raw: dict[str, Any], image: str, cfg: str, container_id: str = "") -> dict[str, Any]:
    hashes = {
        "plainHash": plain_hash("main", image),
        "extractedEnvFromMetadataHash": deep_hash(
            json.dumps([{"name": "CFG", "value": cfg}], separators=(",", ":")).encode()
        ),
    }
    running = raw["status"]["containerStatuses"][0]["containerID"]
    entry = {"name": "main", "containerID": container_id or running, "restartCount": 0, "hashes": hashes}
    text = json.dumps({"containers": [entry]})
    return patched(raw, {"metadata": {"uid": "u1", "annotations": {names.RUNTIME_CONTAINERS_META: text}}})


@pytest.mark.behaviour("PM-48", "PM-51", "PM-17")
def test_a_changed_annotation_is_complete_when_the_agent_reports_it() -> None:
    old, new = template(CFG, annotations={"cfg": "1"}), template(CFG, annotations={"cfg": "2"})
    raw = begun(raw_pod(old), possible(old, new))
    assert raw["metadata"]["annotations"]["cfg"] == "2"
    assert "no node agent" in refresh(pod(raw), NOW).reason
    assert "not been restarted" in refresh(pod(meta(raw, "nginx:1", "1")), NOW).reason
    other = meta(raw, "nginx:1", "2", "containerd://gone")
    assert refresh(pod(other), NOW).action is RefreshAction.INCOMPLETE
    assert refresh(pod(meta(raw, "nginx:1", "2")), NOW).action is RefreshAction.READY


@pytest.mark.behaviour("PM-48", "PM-138")
@pytest.mark.parametrize(("length", "action"), [
    (2_000, RefreshAction.READY), (LONGEST_OF_POD, RefreshAction.INCOMPLETE)
])  # fmt: skip
def test_openkruises_agent_reports_a_long_annotation(length: int, action: RefreshAction) -> None:
    values = ["1" * length, "2" * length]
    old, new = (template(CFG, annotations={"cfg": value}) for value in values)
    raw = begun(raw_pod(old), possible(old, new))
    reports = [pod(meta(raw, "nginx:1", value)) for value in values]
    assert [refresh(found, NOW).action for found in reports] == [RefreshAction.INCOMPLETE, action]
    known = [runtime_meta(found) for found in reports]
    late = [outdated(found, one) for found, one in zip(reports, known, strict=True) if one is not None]
    assert [len(one) for one in late] == [1, action is RefreshAction.INCOMPLETE]


@pytest.mark.behaviour("PM-140")
def test_without_a_node_agent_env_is_not_refreshed_in_place() -> None:
    old, new = template(CFG, annotations={"cfg": "1"}), template(CFG, annotations={"cfg": "2"})
    spec, raw = possible(old, new), raw_pod(old)
    assert "no node agent reports" in str(blocked_on_pod(pod(raw), spec))
    assert blocked_on_pod(pod(meta(raw, "nginx:1", "1")), spec) is None
    image_only = template(container("main", "nginx:2", env=CFG["env"]), annotations={"cfg": "1"})
    assert blocked_on_pod(pod(raw), possible(old, image_only)) is None
    raw["status"]["containerStatuses"] = []
    assert blocked_on_pod(pod(raw), spec) is None


@pytest.mark.behaviour("PM-50", "PM-51", "PM-46")
def test_an_image_is_complete_when_the_agent_reports_it() -> None:
    old, new = template(CFG), template(container("main", "nginx:2", env=CFG["env"]))
    raw = begun(raw_pod(old), possible(old, new))
    assert refresh(pod(meta(raw, "nginx:1", "")), NOW).action is RefreshAction.INCOMPLETE
    assert refresh(pod(meta(raw, "nginx:2", "")), NOW).action is RefreshAction.READY
    raw["metadata"]["annotations"][names.RUNTIME_CONTAINERS_META] = "{"
    assert refresh(pod(raw), NOW).action is RefreshAction.INCOMPLETE
