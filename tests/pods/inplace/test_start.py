from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from app.api import names
from app.kube.objects import ResourceRequirements
from app.pods.inplace.batch import containers_of_batch, has_resize_subresource, resize_patch
from app.pods.inplace.state import RefMetadata, UpdateSpec
from app.pods.inplace.steps import start, unready_patch
from tests.pods.inplace.pods import (
    GRACE,
    MARK,
    NEW,
    NOW,
    OLD,
    STATE,
    begun,
    container,
    env_from,
    later,
    patched,
    pod,
    possible,
    raw_pod,
    restarted,
    started,
    state_of,
    template,
)


def conditions(raw: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {found["type"]: found for found in raw["status"]["conditions"]}


@pytest.mark.behaviour("PM-22", "PM-41")
def test_the_pod_leaves_service_first() -> None:
    raw = raw_pod(OLD)
    after = conditions(patched(raw, unready_patch(pod(raw), possible(OLD, NEW), NOW)))
    assert after["InPlaceUpdateReady"] == {
        "type": "InPlaceUpdateReady",
        "status": "False",
        "reason": "StartInPlaceUpdate",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    assert after["Ready"]["reason"] == "ReadinessGatesNotReady"
    assert after["Ready"]["message"] == 'the status of pod readiness gate "InPlaceUpdateReady" is not "True", but False'


@pytest.mark.behaviour("PM-22", "PM-23", "PM-27")
def test_no_readiness_write_if_out_of_service_or_without_gate() -> None:
    raw = raw_pod(OLD)
    spec = possible(OLD, NEW)
    once = patched(raw, unready_patch(pod(raw), spec, NOW))
    assert unready_patch(pod(once), spec, NOW) is None
    raw["spec"]["readinessGates"] = []
    assert unready_patch(pod(raw), spec, NOW) is None
    assert start(pod(raw), spec, NOW, labels=MARK).patch["spec"]["containers"] == [{"name": "main", "image": "nginx:2"}]


@pytest.mark.behaviour("PM-24", "PM-25", "PM-30", "PM-34", "PM-36", "PM-180", "PM-55")
def test_one_write_marks_the_pod_and_changes_the_image() -> None:
    raw = raw_pod(OLD, annotations={"inplace-update-state": "{}"})
    patch = start(pod(raw), possible(OLD, NEW), NOW, labels=MARK, annotations={"t": "x"}).patch
    state = patch["metadata"]["annotations"].pop(STATE)
    assert patch == {
        "metadata": {
            "uid": "u1",
            "resourceVersion": "7",
            "labels": MARK,
            "annotations": {"inplace-update-state": None, "t": "x"},
        },
        "spec": {"containers": [{"name": "main", "image": "nginx:2"}]},
    }
    assert state.startswith(
        '{"revision":"web-new","updateTimestamp":"2026-01-02T03:04:05Z",'
        '"lastContainerStatuses":{"main":{"imageID":"id-of-nginx:1"}},"updateImages":true,'
        '"containerBatchesRecord":[{"timestamp":"2026-01-02T03:04:05Z","containers":["main"]}]'
    )


@pytest.mark.behaviour("PM-25", "PM-42")
def test_with_a_grace_period_only_the_label_changes() -> None:
    spec = possible(OLD, template(container("main", "nginx:2"), annotations={"a": "b"}), grace=10)
    raw = raw_pod(OLD)
    begin = start(pod(raw), spec, NOW, labels=MARK)
    assert begin.delay == 10
    after = patched(raw, begin.patch)
    assert after["metadata"]["labels"]["controller-revision-hash"] == "web-new"
    assert after["spec"] == raw["spec"]
    assert "a" not in after["metadata"]["annotations"]
    assert state_of(after)["lastContainerStatuses"] is None
    assert "containerBatchesRecord" not in state_of(after)
    grace = after["metadata"]["annotations"][GRACE]
    encoded = base64.b64encode(b'{"metadata":{"annotations":{"a":"b"}}}').decode()
    assert grace == (
        f'{{"revision":"web-new","containerImages":{{"main":"nginx:2"}},"metaDataPatch":"{encoded}","graceSeconds":10}}'
    )


@pytest.mark.behaviour("PM-23", "PM-36")
def test_a_metadata_change_keeps_service() -> None:
    new = template(annotations={"a": "b"})
    spec = possible(OLD, new, grace=10)
    raw = raw_pod(OLD)
    assert unready_patch(pod(raw), spec, NOW) is None
    begin = start(pod(raw), spec, NOW, labels=MARK)
    after = patched(raw, begin.patch)
    assert (begin.delay, after["metadata"]["annotations"]["a"]) == (0, "b")
    assert state_of(after)["containerBatchesRecord"] == [{"timestamp": "2026-01-02T03:04:05Z", "containers": []}]


def resized(policy: dict[str, str] | None, **more: Any) -> dict[str, Any]:
    policies = [{"resourceName": name, "restartPolicy": value} for name, value in (policy or {}).items()]
    return container("main", resizePolicy=policies, **more)


@pytest.mark.behaviour("PM-23")
@pytest.mark.parametrize(("policy", "unready"), [
    pytest.param({}, False, id="nothing restarts"),
    pytest.param({"cpu": "RestartContainer"}, True, id="cpu restarts"),
    pytest.param({"memory": "RestartContainer", "cpu": "NotRequired"}, False, id="memory would restart"),
])  # fmt: skip
def test_a_resource_change_leaves_service_only_for_a_restart(policy: dict[str, str], unready: bool) -> None:
    old = template(resized(policy, resources={"requests": {"cpu": "1", "memory": "1Gi"}}))
    new = template(resized(policy, resources={"requests": {"cpu": "2", "memory": "1Gi"}}))
    assert (unready_patch(pod(raw_pod(old)), possible(old, new), NOW) is not None) is unready


@pytest.mark.behaviour("PM-37", "PM-38", "PM-181")
def test_resources_use_the_subresource_or_the_patch_on_older_servers() -> None:
    old = template(container("main", resources={"requests": {"cpu": "1", "memory": "1Gi"}}))
    new = template(container("main", resources={"requests": {"cpu": "2", "memory": "1024Mi"}}))
    raw = raw_pod(old)
    begin = start(pod(raw), possible(old, new), NOW, labels=MARK)
    assert "spec" not in begin.patch
    resources = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    assert begin.resize == {"metadata": {"uid": "u1"}, "spec": {"containers": resources}}
    older = start(pod(raw), possible(old, new), NOW, labels=MARK, resize_subresource=False)
    assert (older.resize, older.patch["spec"]["containers"]) == (None, resources)
    done = patched(raw, begin.resize)
    assert resize_patch(pod(done), {"main": ResourceRequirements({}, {"cpu": "2000m"})}) is None


@pytest.mark.parametrize(
    ("version", "has"),
    [("v1.34.1", True), ("v1.32.0-rc.1", True), ("1.32", True), ("v1.31.9", False), ("v2.0", True), ("?", False)],
)
def test_the_resize_subresource_exists_since_kubernetes_1_32(version: str, has: bool) -> None:
    assert has_resize_subresource(version) is has


@pytest.mark.behaviour("PM-31", "PM-32", "PM-33", "PM-35", "PM-36", "PM-44", "PM-142")
def test_containers_follow_their_launch_priorities() -> None:
    # c1 20, c2 10, c3 0, c4 0; c2 and c3 read label k2.
    reader = [env_from("labels", "k2")]
    old = template(
        container("c1"), container("c2", env=reader), container("c3", env=reader), container("c4"), labels={"k2": "1"}
    )
    new = template(
        container("c1", "x:2"),
        container("c2", "x:2", env=reader),
        container("c3", env=reader),
        container("c4", "x:2"),
        labels={"k2": "2"},
    )
    raw = raw_pod(old, priorities={"c1": 20, "c2": 10, "c3": 0, "c4": 0})
    raw = begun(raw, possible(old, new))
    state = state_of(raw)
    assert state["containerBatchesRecord"][0]["containers"] == ["c1"]
    assert state["nextContainerImages"] == {"c2": "x:2", "c4": "x:2"}
    ref = {"creationTimestamp": None, "labels": {"k2": "2"}}
    assert state["nextContainerRefMetadata"] == {"c2": ref, "c3": ref}
    assert state["preCheckBeforeNext"] == {"containersRequiredReady": ["c1"]}
    assert raw["metadata"]["labels"]["k2"] == "1"


REFS = {"c2": RefMetadata({"k": "1"}, {}), "c3": RefMetadata({"k": "1"}, {"a": "1"}), "c4": RefMetadata({}, {"a": "1"})}


@pytest.mark.behaviour("PM-32", "PM-33")
@pytest.mark.parametrize(("spec", "priorities", "batch"), [
    pytest.param(UpdateSpec(container_images={"a": "", "b": ""}), {}, {"a", "b"}, id="no priorities: all at once"),
    pytest.param(UpdateSpec(container_images={"a": "", "b": ""}), {"a": 1}, {"a", "b"}, id="without joins the first"),
    pytest.param(UpdateSpec(container_images={"a": "", "b": ""}), {"a": -2, "b": -1}, {"b"}, id="negative"),
    pytest.param(UpdateSpec(container_images={"b": ""}), {"a": 5, "b": 1}, {"b"}, id="only affected ones count"),
    pytest.param(UpdateSpec(container_ref_metadata=REFS), {"c2": 9, "c3": 0, "c4": 0}, {"c2", "c3", "c4"},
     id="chain of keys"),
])  # fmt: skip
def test_pods_update_in_batches_of_their_priority(
    spec: UpdateSpec, priorities: dict[str, int], batch: set[str]
) -> None:
    assert containers_of_batch(spec, priorities) == batch


@pytest.mark.behaviour("PM-34")
def test_previous_images_are_recorded_unless_nothing_runs() -> None:
    spec = possible(OLD, NEW)
    fresh = raw_pod(OLD)
    fresh["status"]["containerStatuses"] = []
    assert state_of(begun(fresh, spec))["lastContainerStatuses"] == {"main": {}}
    unscheduled = raw_pod(OLD)
    unscheduled["status"]["containerStatuses"] = []
    del unscheduled["spec"]["nodeName"]
    assert state_of(begun(unscheduled, spec))["lastContainerStatuses"] is None


TWO = template(container("main"), container("side"))


@pytest.mark.behaviour("PM-56")
def test_a_new_update_keeps_pending_parts_of_an_unfinished_batch() -> None:
    raw = begun(raw_pod(TWO), possible(TWO, template(container("main", "nginx:2"), container("side"))))
    target = template(container("main", "nginx:2"), container("side", "nginx:3"))
    spec = possible(template(container("main", "nginx:2"), container("side")), target)
    unreported = {**raw, "status": {**raw["status"], "containerStatuses": []}}
    known = {"imageID": "id-of-nginx:1"}
    for now, last in (
        (raw, {"main": known, "side": known}),
        (restarted(raw, "main"), {"side": known}),
        (unreported, {"main": known, "side": {}}),
    ):
        assert state_of(started(now, spec, later(5)))["lastContainerStatuses"] == last


@pytest.mark.behaviour("PM-56", "PM-57a")
def test_a_new_update_includes_changes_delayed_by_the_grace_period() -> None:
    middle = template(container("main", "nginx:2"), container("side"), annotations={"a": "1", "b": "1"})
    raw = begun(raw_pod(TWO), possible(TWO, middle, grace=10))
    target = template(container("main", "nginx:2"), container("side", "nginx:3"), annotations={"b": "2"})
    after = started(raw, possible(middle, target), later(5))
    assert [item["image"] for item in after["spec"]["containers"]] == ["nginx:2", "nginx:3"]
    annotations = after["metadata"]["annotations"]
    assert ("a" in annotations, annotations["b"], GRACE in annotations) == (False, "2", False)


@pytest.mark.behaviour("PM-57a")
def test_a_rollback_within_the_grace_period_changes_nothing() -> None:
    raw = begun(raw_pod(OLD), possible(OLD, NEW, grace=10))
    begin = start(pod(raw), possible(NEW, OLD, grace=10), later(5), labels=MARK)
    after = patched(raw, begin.patch)
    assert (begin.delay, GRACE in after["metadata"]["annotations"]) == (0, False)
    assert after["spec"] == raw["spec"]


@pytest.mark.behaviour("PM-46")
def test_invalid_state_of_an_earlier_update_is_ignored() -> None:
    raw = raw_pod(OLD, annotations={STATE: "{", GRACE: "[]", names.RUNTIME_CONTAINERS_META: "nothing"})
    after = started(raw, possible(OLD, NEW))
    assert json.loads(after["metadata"]["annotations"][STATE])["revision"] == "web-new"
    assert GRACE not in after["metadata"]["annotations"]
