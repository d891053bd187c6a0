from __future__ import annotations

import json
from typing import Any

import pytest

from app.api import names
from app.pods.container_meta import plain_hash
from app.pods.inplace.completion import is_update_complete
from app.pods.inplace.state import GraceError, StateError
from app.pods.inplace.steps import RefreshAction, finished_annotations, refresh
from tests.pods.inplace.pods import (
    GRACE,
    NEW,
    NOW,
    OLD,
    STATE,
    begun,
    container,
    later,
    patched,
    pod,
    possible,
    raw_pod,
    restarted,
    state_of,
    status,
    template,
)


@pytest.mark.behaviour("PM-42", "PM-54")
def test_the_image_changes_after_the_grace_period() -> None:
    raw = begun(raw_pod(OLD), possible(OLD, NEW, grace=10))
    step = refresh(pod(raw), later(3.5))
    assert (step.action, step.delay, step.stops) == (RefreshAction.WAIT, 7, False)
    assert not is_update_complete(pod(raw))
    step = refresh(pod(raw), later(10))
    assert (step.action, step.stops) == (RefreshAction.APPLY, True)
    raw = patched(raw, step.patch)
    assert raw["spec"]["containers"][0]["image"] == "nginx:2"
    assert GRACE not in raw["metadata"]["annotations"]
    state = state_of(raw)
    assert state["lastContainerStatuses"] == {"main": {"imageID": "id-of-nginx:1"}}
    assert (len(state["containerBatchesRecord"]), state["updateTimestamp"]) == (1, "2026-01-02T03:04:05Z")
    assert refresh(pod(raw), later(11)).action is RefreshAction.INCOMPLETE
    raw = restarted(raw, "main")
    step = refresh(pod(raw), later(12))
    assert step.action is RefreshAction.READY
    raw = patched(raw, step.status)
    assert raw["status"]["conditions"][0] == {
        "type": "InPlaceUpdateReady",
        "status": "True",
        "lastTransitionTime": "2026-01-02T03:04:17Z",
    }
    assert refresh(pod(raw), later(13)).action is RefreshAction.NOTHING
    assert is_update_complete(pod(raw))


@pytest.mark.behaviour("PM-42")
@pytest.mark.parametrize(("now", "wanted", "delay"), [(4, 5, 1), (6, 5, 0), (4, 20, 6), (4, None, 6)])
def test_a_shorter_grace_period_applies_to_waiting_pods(now: int, wanted: int | None, delay: int) -> None:
    raw = begun(raw_pod(OLD), possible(OLD, NEW, grace=10))
    step = refresh(pod(raw), later(now), grace_seconds=wanted)
    assert step.delay == delay
    assert step.action is (RefreshAction.WAIT if delay else RefreshAction.APPLY)


@pytest.mark.behaviour("PM-42", "PM-183")
def test_only_a_grace_annotation_of_another_revision_is_dropped() -> None:
    raw = begun(raw_pod(OLD), possible(OLD, NEW, grace=10))
    raw["metadata"]["labels"]["controller-revision-hash"] = "web-other"
    step = refresh(pod(raw), later(20))
    after = patched(raw, step.patch)
    assert step.action is RefreshAction.DROP_GRACE
    assert GRACE not in after["metadata"]["annotations"]
    assert after["spec"] == raw["spec"]


@pytest.mark.behaviour("PM-42", "PM-46")
@pytest.mark.parametrize(("annotations", "error"), [
    ({STATE: "{"}, StateError),
    ({STATE: '{"updateTimestamp":"yesterday"}'}, StateError),
    ({STATE: '{"updateTimestamp":"2026-01-02T03:04:05"}'}, StateError),
    ({STATE: '{"updateTimestamp":"9999-12-31T23:59:59-01:00"}'}, StateError),
    ({GRACE: "7", STATE: "{}"}, GraceError),
    ({GRACE: '{"revision":"web-old","metaDataPatch":"%"}', STATE: "{}"}, GraceError),
    ({GRACE: '{"revision":"web-old","metaDataPatch":"W10="}', STATE: "{}"}, GraceError),
    ({GRACE: '{"revision":"web-old"}'}, StateError),
])  # fmt: skip
def test_unusable_annotations_are_reported_with_the_pod(annotations: Any, error: Any) -> None:
    with pytest.raises(error, match="Pod shop/web-0"):
        refresh(pod(raw_pod(OLD, annotations=annotations)), NOW)


@pytest.mark.behaviour("PM-45", "PM-40")
def test_a_pod_that_was_never_updated_becomes_ready_once() -> None:
    raw = raw_pod(OLD)
    raw["status"]["conditions"] = []
    step = refresh(pod(raw), NOW)
    assert step.action is RefreshAction.READY
    assert refresh(pod(patched(raw, step.status)), NOW).action is RefreshAction.NOTHING
    raw["spec"]["readinessGates"] = []
    assert refresh(pod(raw), NOW).action is RefreshAction.NOTHING


@pytest.mark.behaviour("PM-43", "PM-44", "PM-36", "PM-29")
def test_batches_wait_for_ready_containers_of_higher_priority() -> None:
    old = template(container("main"), container("side"))
    new = template(container("main", "nginx:2"), container("side", "nginx:2"))
    raw = begun(raw_pod(old, priorities={"side": 5, "main": 0}), possible(old, new))
    assert refresh(pod(raw), NOW).action is RefreshAction.INCOMPLETE
    raw = restarted(raw, "side", ready=False)
    step = refresh(pod(raw), NOW)
    assert (step.action, step.reason) == (RefreshAction.INCOMPLETE, "waiting for side to be ready")
    assert not is_update_complete(pod(raw))
    raw = restarted(raw, "side")
    step = refresh(pod(raw), later(9))
    assert step.action is RefreshAction.APPLY
    raw = patched(raw, step.patch)
    state = state_of(raw)
    assert [batch["containers"] for batch in state["containerBatchesRecord"]] == [["side"], ["main"]]
    assert "nextContainerImages" not in state
    assert "preCheckBeforeNext" not in state
    assert refresh(pod(restarted(raw, "main")), NOW).action is RefreshAction.READY


@pytest.mark.behaviour("PM-44", "PM-37", "PM-49", "PM-180")
def test_resources_of_later_batches_are_applied_and_lost_resizes_repeated() -> None:
    def sized(name: str, cpu: str) -> dict[str, Any]:
        return container(name, resources={"requests": {"cpu": cpu}})

    old = template(sized("main", "1"), sized("side", "1"))
    new = template(sized("main", "2"), sized("side", "2"))
    raw = begun(raw_pod(old, priorities={"side": 5, "main": 0}), possible(old, new))
    # The manager stopped before the resize call.
    step = refresh(pod(raw), NOW, vertical_scaling=True)
    assert step.action is RefreshAction.RESIZE
    raw = patched(raw, step.resize)
    assert refresh(pod(raw), NOW, vertical_scaling=True).reason == "container side does not have its new resources yet"
    raw["status"]["containerStatuses"][1]["resources"] = {"requests": {"cpu": "2000m"}}
    step = refresh(pod(raw), NOW, vertical_scaling=True)
    assert step.action is RefreshAction.APPLY
    raw = patched(patched(raw, step.patch), step.resize)
    assert [item["resources"]["requests"]["cpu"] for item in raw["spec"]["containers"]] == ["2", "2"]
    raw["status"]["containerStatuses"][0]["resources"] = {"requests": {"cpu": "2"}}
    assert is_update_complete(pod(raw), vertical_scaling=True)


@pytest.mark.behaviour("PM-12", "PM-34", "PM-52")
@pytest.mark.parametrize("reported", [False, True], ids=["without an agent", "with an agent"])
def test_the_image_of_a_native_sidecar_changes_in_place(reported: bool) -> None:
    def mesh(image: str) -> dict[str, Any]:
        return template(initContainers=[container("setup"), container("mesh", image, restartPolicy="Always")])

    raw = raw_pod(mesh("mesh:1"))
    raw["status"]["initContainerStatuses"] = [status("setup", "nginx:1"), status("mesh", "mesh:1")]
    if reported:
        main = {"name": "main", "containerID": "containerd://main-nginx:1", "restartCount": 0}
        main["hashes"] = {"plainHash": plain_hash("main", "nginx:1")}
        raw["metadata"]["annotations"][names.RUNTIME_CONTAINERS_META] = json.dumps({"containers": [main]})
    raw = begun(raw, possible(mesh("mesh:1"), mesh("mesh:2")))
    assert [one["image"] for one in raw["spec"]["initContainers"]] == ["nginx:1", "mesh:2"]
    assert [one["name"] for one in raw["spec"]["containers"]] == ["main"]
    assert refresh(pod(raw), NOW).reason == "container mesh does not run mesh:2 yet"
    raw["status"]["initContainerStatuses"][1] = status("mesh", "mesh:2", containerID="containerd://other")
    assert refresh(pod(raw), NOW).action is RefreshAction.READY


@pytest.mark.behaviour("PM-180")
def test_after_the_update_others_may_resize_the_pod() -> None:
    old, new = (template(container("main", resources={"requests": {"cpu": cpu}})) for cpu in "12")
    raw = begun(raw_pod(old), possible(old, new))
    raw = restarted(patched(raw, refresh(pod(raw), NOW).resize), "main")
    raw = patched(raw, {"metadata": {"uid": "u1", "annotations": finished_annotations(pod(raw))}})
    raw["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    assert refresh(pod(raw), NOW).action is RefreshAction.NOTHING
    raw = restarted(raw, "main")
    assert is_update_complete(pod(raw), vertical_scaling=True)


def updated(before: dict[str, Any], /, **now: Any) -> dict[str, Any]:
    """Return a Pod whose image was changed to nginx:2 at status ``before``; ``now`` holds the later changes of it."""
    raw = raw_pod(OLD, generation=2)
    raw["status"]["containerStatuses"] = [status("main", "nginx:1") | before]
    raw = begun(raw, possible(OLD, NEW))
    raw["status"]["containerStatuses"] = [status("main", "nginx:1") | before | now]
    raw["status"]["observedGeneration"] = 2
    return raw


TAG = "docker.io/library/nginx:2"


@pytest.mark.parametrize(("raw", "complete"), [
    pytest.param(updated({}), False, id="nothing happened"),
    pytest.param(updated({}, imageID="id-2", image=TAG), True, id="another image"),
    pytest.param(updated({}, imageID="id-2", image=TAG, ready=False), True, id="another image, crashing"),
    pytest.param(updated({}, image=TAG), True, id="the same content under the new tag"),
    pytest.param(updated({}, image="nginx:2"), True, id="the same content, short name"),
    pytest.param(updated({}, imageID="", image=TAG), False, id="being pulled"),
    pytest.param(updated({"imageID": "", "containerID": "", "ready": False}), False, id="it never ran"),
    pytest.param(updated({"imageID": "", "containerID": ""}, imageID="id-2", image=TAG, ready=False), True,
     id="runs for the first time"),
    pytest.param(updated({"imageID": ""}, imageID="id-1", ready=False), False, id="the old image came in the meantime"),
    pytest.param(updated({}, containerID="containerd://new"), True,
     id="restarted, and the runtime reports the first tag"),
    pytest.param(updated({}, containerID="containerd://new", ready=False), False, id="the same, not ready"),
])  # fmt: skip
@pytest.mark.behaviour("PM-52", "PM-54")
def test_an_update_is_complete_once_its_images_run(raw: dict[str, Any], complete: bool) -> None:
    assert is_update_complete(pod(raw)) is complete


@pytest.mark.behaviour("PM-52")
def test_a_restart_before_the_kubelet_observed_the_spec_does_not_count() -> None:
    raw = updated({}, containerID="containerd://new")
    raw["status"]["observedGeneration"] = 1
    assert not is_update_complete(pod(raw))


DIGEST = "sha256:" + "ab" * 32


@pytest.mark.behaviour("PM-52")
@pytest.mark.parametrize(("old", "shown", "new", "arrived"), [
    ("nginx:1", "nginx:1", f"nginx:1@{DIGEST}", f"nginx@{DIGEST}"),
    (f"nginx@{DIGEST}", f"nginx@{DIGEST}", "nginx", "nginx:latest"),
])  # fmt: skip
def test_a_tag_does_not_prove_the_image(old: str, shown: str, new: str, arrived: str) -> None:
    before, after = template(container("main", old)), template(container("main", new))
    raw = raw_pod(before, generation=2)
    raw["status"]["containerStatuses"] = [status("main", shown)]
    raw = begun(raw, possible(before, after))
    raw["status"]["observedGeneration"] = 2
    assert not is_update_complete(pod(raw))
    raw["status"]["containerStatuses"] = [status("main", arrived, imageID=f"id-of-{shown}")]
    assert is_update_complete(pod(raw))


@pytest.mark.behaviour("PM-53")
def test_a_container_without_status_is_unchanged() -> None:
    raw = updated({}, imageID="id-2", image=TAG)
    raw["status"]["containerStatuses"] = []
    assert refresh(pod(raw), NOW).reason == "container main has no status"


@pytest.mark.behaviour("PM-56", "PM-19")
def test_a_rollback_before_the_pull_completes_at_once() -> None:
    raw = begun(raw_pod(OLD), possible(OLD, NEW))
    raw = begun(raw, possible(NEW, OLD))
    assert is_update_complete(pod(raw))


@pytest.mark.behaviour("PM-54")
def test_the_final_state_is_updated_and_old_records_are_kept() -> None:
    raw = restarted(begun(raw_pod(OLD), possible(OLD, NEW)), "main")
    written = finished_annotations(pod(raw))
    assert '"state":"Updated"' in str(written[STATE])
    again = patched(raw, {"metadata": {"uid": "u1", "annotations": written}})
    assert finished_annotations(pod(again)) == {}
    assert finished_annotations(pod(raw_pod(OLD, annotations={STATE: '{"revision":"web-old"}'}))) == {}
    assert finished_annotations(pod(raw_pod(OLD))) == {}


@pytest.mark.behaviour("PM-190")
def test_a_resize_that_the_kubelet_does_not_finish_is_retried_less_and_less_often() -> None:
    def sized(size: str) -> dict[str, Any]:
        return template(container("main", resources=memory(size)))

    def memory(size: str) -> dict[str, Any]:
        return {"limits": {"memory": size}, "requests": {"memory": size}}

    raw = begun(raw_pod(sized("2Gi")), possible(sized("2Gi"), sized("1Gi")))
    raw = patched(raw, refresh(pod(raw), NOW).resize)
    reason = "container main does not have its new resources yet"

    def step(seconds: float, message: str = "") -> Any:
        condition = {"type": "PodResizeInProgress", "status": "True", "message": message}
        condition["lastTransitionTime"] = later(0).isoformat()
        raw["status"]["conditions"] = [*raw["status"]["conditions"][:3], condition]
        return refresh(pod(raw), later(seconds), vertical_scaling=True)

    assert refresh(pod(raw), later(9), vertical_scaling=True).reason == reason
    found = step(1)
    assert (found.action, found.delay, found.reason) == (RefreshAction.INCOMPLETE, 3, reason)
    refused = 'cannot decrease memory limits: missing container "main" memory usage'
    below = "attempting to set pod memory limit (1) below current usage (2)"
    assert step(9, below).reason == f"{reason}: {below}"
    assert (step(9, below).action, step(9, below).delay) == (RefreshAction.INCOMPLETE, 0)
    retries, now = [], 0
    while now < 1000:
        found = step(now, refused)
        assert found.reason == f"{reason}: {refused}"
        if found.action is RefreshAction.RETRY:
            assert found.stops
            retries.append(now)
            raw = patched(raw, found.patch)
            found = step(now, refused)
        assert found.action is RefreshAction.INCOMPLETE
        now += found.delay
    assert retries[:4] == [4, 8, 12, 16]
    assert len([retry for retry in retries if retry <= 120]) == 30
    assert len(retries) < 100
    assert retries[-1] - retries[-2] == 30
    raw["status"]["containerStatuses"][0]["resources"] = memory("1Gi")
    assert is_update_complete(pod(raw), vertical_scaling=True)
