import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.images import parse_image
from app.kube.patches import merge_patch
from app.sandbox.kubelet import UNREADY, Pace, PodPlan, Surroundings, config_maps_of, plan
from app.sandbox.objects import decode_pod

NOW = datetime(2030, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
AROUND = {"host_ip": "198.18.0.1", "pod_ip": "10.1.0.1", "now": NOW}


def body(containers: Any = None, *, inits: Any = (), status: Any = None, spec: Any = None, **metadata: Any) -> Any:
    """A Pod in JSON. Containers may be given as name → image."""
    containers = {"main": "nginx:1"} if containers is None else containers
    if isinstance(containers, dict):
        containers = [{"name": name, "image": image} for name, image in containers.items()]
    metadata = {"name": "web-0", "namespace": "shop", "uid": "u", "generation": 1} | metadata
    spec = {"nodeName": "node1", "containers": containers, "initContainers": list(inits)} | (spec or {})
    return {"metadata": metadata, "spec": spec, "status": status or {"phase": "Pending"}}


def patched(pod: Any, status: Mapping[str, Any]) -> Any:
    """The Pod after a strategic merge patch of its status, as an API server does it."""
    change = dict(status)
    by_type = {c["type"]: c for c in pod["status"].get("conditions", ())}
    for condition in change.pop("conditions", ()):
        by_type[condition["type"]] = merge_patch(by_type.get(condition["type"], {}), condition)
    merged = merge_patch(pod["status"], change)
    if by_type:
        merged["conditions"] = list(by_type.values())
    # Through JSON, as the API server answers.
    return json.loads(json.dumps(pod | {"status": merged}))


def planned(pod: Any, **around: Any) -> PodPlan:
    return plan(decode_pod(json.dumps(pod).encode()), Surroundings(**(AROUND | around)))


def settled(pod: Any, **around: Any) -> Any:
    """The Pod when its kubelet has nothing left to report; fails if that takes more than a few patches."""
    for _ in range(4):
        todo = planned(pod, **around)
        if not todo.status:
            return pod
        pod = patched(pod, todo.status)
    raise AssertionError(f"still changing: {todo.status}")


def conditions(pod: Any) -> dict[str, str]:
    return {c["type"]: c["status"] for c in pod["status"]["conditions"]}


def states(pod: Any, field: str = "containerStatuses") -> dict[str, str]:
    """Container → the name of its state, with the reason why it waits."""
    found = {}
    for status in pod["status"].get(field, ()):
        [(name, detail)] = status["state"].items()
        found[status["name"]] = detail.get("reason", name) if name == "waiting" else name
    return found


def only(pod: Any, name: str = "main") -> Any:
    return next(s for s in pod["status"]["containerStatuses"] if s["name"] == name)


def test_one_patch_brings_a_bound_pod_to_ready() -> None:
    todo = planned(body())
    pod = patched(body(), todo.status)
    assert not planned(pod).status
    assert pod["status"]["phase"] == "Running"
    assert conditions(pod) == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
        "PodScheduled": "True",
    }
    assert (pod["status"]["podIP"], pod["status"]["podIPs"]) == ("10.1.0.1", [{"ip": "10.1.0.1"}])
    assert (pod["status"]["hostIP"], pod["status"]["startTime"]) == ("198.18.0.1", "2030-01-01T12:00:00Z")
    status = only(pod)
    assert status["image"] == "docker.io/library/nginx:1"
    assert status["imageID"].startswith("docker.io/library/nginx@sha256:")
    assert (status["ready"], status["started"], status["restartCount"]) == (True, True, 0)
    assert status["state"] == {"running": {"startedAt": "2030-01-01T12:00:00Z"}}


def test_the_image_id_follows_from_the_image_name() -> None:
    ids = {only(settled(body({"main": image})))["imageID"] for image in ("nginx:1", "nginx:2", "other:1")}
    assert len(ids) == 3
    assert only(settled(body()))["imageID"] in ids
    digest = "sha256:" + "ab" * 32
    assert only(settled(body({"main": f"nginx@{digest}"})))["imageID"] == f"docker.io/library/nginx@{digest}"
    assert only(settled(body({"main": "NOT AN IMAGE"})))["imageID"].startswith("sha256:")


def test_a_pod_on_the_hosts_network_has_its_address() -> None:
    assert settled(body(spec={"hostNetwork": True}))["status"]["podIP"] == "198.18.0.1"


def test_init_containers_end_and_native_sidecars_run_before_the_containers_start() -> None:
    inits = [
        {"name": "prep", "image": "busybox"},
        {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"},
        {"name": "late", "image": "busybox"},
    ]
    pod = settled(body(inits=inits))
    assert states(pod, "initContainerStatuses") == {"prep": "terminated", "proxy": "running", "late": "terminated"}
    assert states(pod) == {"main": "running"}
    assert [s["ready"] for s in pod["status"]["initContainerStatuses"]] == [True, True, True]
    assert pod["status"]["phase"] == "Running"


def barrier(name: str, key: str, config_map: str = "web-0-barrier", **more: Any) -> dict[str, Any]:
    selector = {"name": config_map, "key": key} | more
    env = [
        {"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": selector}},
        {"name": "A", "value": "1"},
    ]
    return {"name": name, "image": "a:1", "env": env}


def config_maps(**data: str) -> Any:
    return lambda namespace, name: data if (namespace, name) == ("shop", "web-0-barrier") else None


def test_a_container_waits_for_the_config_map_key_its_env_needs() -> None:
    pod = settled(body([barrier("first", "p_0"), barrier("second", "p_-1")]))
    assert states(pod) == {"first": "CreateContainerConfigError", "second": "CreateContainerConfigError"}
    assert only(pod, "first")["state"]["waiting"]["message"] == 'configmap "web-0-barrier" not found'
    assert pod["status"]["phase"] == "Pending"
    assert conditions(pod)["Initialized"] == "True"
    pod = settled(pod, config_maps=config_maps(p_0="true"))
    assert states(pod) == {"first": "running", "second": "CreateContainerConfigError"}
    text = "couldn't find key p_-1 in ConfigMap shop/web-0-barrier"
    assert only(pod, "second")["state"]["waiting"]["message"] == text
    assert conditions(pod)["ContainersReady"] == "False"
    pod = settled(pod, config_maps=config_maps(**{"p_0": "true", "p_-1": "true"}))
    assert states(pod) == {"first": "running", "second": "running"}
    assert (pod["status"]["phase"], conditions(pod)["Ready"]) == ("Running", "True")
    assert [s["restartCount"] for s in pod["status"]["containerStatuses"]] == [0, 0]
    # A container that runs does not mind that the key goes.
    assert states(settled(pod)) == {"first": "running", "second": "running"}


def test_an_optional_reference_holds_nothing_back_and_env_from_needs_the_config_map() -> None:
    optional = barrier("main", "p_0", optional=True)
    assert states(settled(body([optional]))) == {"main": "running"}
    all_keys = {"name": "main", "image": "a", "envFrom": [{"configMapRef": {"name": "web-0-barrier"}}]}
    assert states(settled(body([all_keys]))) == {"main": "CreateContainerConfigError"}
    assert states(settled(body([all_keys]), config_maps=config_maps())) == {"main": "running"}
    pod = body([optional, all_keys], inits=[barrier("prep", "x", "other")])
    assert config_maps_of(decode_pod(json.dumps(pod).encode())) == {"web-0-barrier", "other"}


def test_an_init_container_that_waits_holds_the_rest_back() -> None:
    pod = settled(body(inits=[barrier("prep", "p_0"), {"name": "next", "image": "b"}]))
    assert states(pod, "initContainerStatuses") == {"prep": "CreateContainerConfigError", "next": "PodInitializing"}
    assert states(pod) == {"main": "PodInitializing"}
    assert conditions(pod)["Initialized"] == "False"
    [message] = [c["message"] for c in pod["status"]["conditions"] if c["type"] == "Initialized"]
    assert message == "containers with incomplete status: [prep next]"
    pod = settled(pod, config_maps=config_maps(p_0=""))
    assert states(pod) == {"main": "running"}
    assert conditions(pod)["Ready"] == "True"


def with_image(pod: Any, container: str, image: str) -> Any:
    changed: Any = json.loads(json.dumps(pod))
    for one in (*changed["spec"]["containers"], *changed["spec"]["initContainers"]):
        if one["name"] == container:
            one["image"] = image
    changed["metadata"]["generation"] += 1
    return changed


def test_another_image_restarts_that_container_alone() -> None:
    before = settled(body({"main": "nginx:1", "log": "busybox:1"}))
    pod = settled(with_image(before, "log", "busybox:2"))
    assert only(pod, "main") == only(before, "main")
    log = only(pod, "log")
    assert (log["restartCount"], log["ready"], log["image"]) == (1, True, "docker.io/library/busybox:2")
    assert log["imageID"] != only(before, "log")["imageID"]
    assert log["containerID"] != only(before, "log")["containerID"]
    assert log["lastState"]["terminated"]["exitCode"] == 0
    assert pod["status"]["observedGeneration"] == 2
    # There and back again: two restarts, and the id that belongs to the name.
    back = only(settled(with_image(pod, "log", "busybox:1")), "log")
    assert (back["restartCount"], back["imageID"]) == (2, only(before, "log")["imageID"])


def test_a_short_and_a_full_name_are_the_same_image() -> None:
    pod = settled(body())
    assert only(settled(with_image(pod, "main", "docker.io/library/nginx:1")))["restartCount"] == 0


def test_a_native_sidecar_restarts_too_and_an_ended_init_container_does_not() -> None:
    inits = [{"name": "prep", "image": "a:1"}, {"name": "proxy", "image": "a:1", "restartPolicy": "Always"}]
    pod = settled(body(inits=inits))
    pod = settled(with_image(with_image(pod, "prep", "a:2"), "proxy", "a:2"))
    assert [s["restartCount"] for s in pod["status"]["initContainerStatuses"]] == [0, 1]


def test_other_changes_of_the_spec_restart_nothing() -> None:
    pod = settled(body())
    pod["metadata"]["generation"] = 5
    assert planned(pod).status == {"observedGeneration": 5}
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    pod = settled(pod)
    assert (only(pod)["resources"], only(pod)["restartCount"]) == ({"limits": {"cpu": "1"}}, 0)


GATES = {"readinessGates": [{"conditionType": "a/x"}, {"conditionType": "a/y"}]}


def test_readiness_gates_hold_ready_back_and_are_named() -> None:
    pod = settled(body(spec=GATES))
    assert conditions(pod)["ContainersReady"] == "True"
    [ready] = [c for c in pod["status"]["conditions"] if c["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    missing = 'corresponding condition of pod readiness gate "a/{}" does not exist.'
    assert ready["message"] == f"{missing.format('x')}, {missing.format('y')}"
    opened = [{"type": "a/x", "status": "True"}, {"type": "a/y", "status": "False"}]
    pod = settled(patched(pod, {"conditions": opened}))
    [ready] = [c for c in pod["status"]["conditions"] if c["type"] == "Ready"]
    assert ready["message"] == 'the status of pod readiness gate "a/y" is not "True", but False'
    pod = settled(patched(pod, {"conditions": [{"type": "a/y", "status": "True"}]}))
    [ready] = [c for c in pod["status"]["conditions"] if c["type"] == "Ready"]
    assert (ready["status"], "message" in ready, "reason" in ready) == ("True", False, False)
    assert conditions(pod)["a/x"] == "True"


def test_a_container_can_be_made_unready_on_purpose() -> None:
    pod = settled(body({"main": "a", "log": "b"}))
    pod["metadata"]["annotations"] = {UNREADY: "log, other"}
    pod = settled(pod)
    assert (only(pod, "main")["ready"], only(pod, "log")["ready"]) == (True, False)
    assert conditions(pod)["Ready"] == "False"
    [message] = [c["message"] for c in pod["status"]["conditions"] if c["type"] == "Ready"]
    assert message == "containers with unready status: [log]"
    pod["metadata"]["annotations"] = {}
    assert conditions(settled(pod))["Ready"] == "True"


def test_a_transition_time_changes_with_the_status_only() -> None:
    pod = settled(body(spec=GATES))
    later = {"now": NOW + timedelta(hours=1)}
    pod = settled(patched(pod, {"conditions": [{"type": "a/x", "status": "True"}]}), **later)
    times = {c["type"]: c.get("lastTransitionTime") for c in pod["status"]["conditions"]}
    assert times["Ready"] == "2030-01-01T12:00:00Z"
    pod = settled(patched(pod, {"conditions": [{"type": "a/y", "status": "True"}]}), **later)
    times = {c["type"]: c.get("lastTransitionTime") for c in pod["status"]["conditions"]}
    assert (times["Ready"], times["ContainersReady"]) == ("2030-01-01T13:00:00Z", "2030-01-01T12:00:00Z")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_left_alone(phase: str) -> None:
    assert planned(body(status={"phase": phase})) == PodPlan()


# ---- pace


def test_starting_takes_its_time() -> None:
    slow = {"pace": Pace(start=3)}
    first = planned(body(), **slow)
    pod = patched(body(), first.status)
    assert (first.again_after, states(pod)) == (3, {"main": "ContainerCreating"})
    assert pod["status"]["phase"] == "Pending"
    waiting = planned(pod, since_write=1, **slow)
    assert (waiting.status, waiting.again_after) == ({}, 2)
    done = planned(pod, since_write=3, **slow)
    assert states(patched(pod, done.status)) == {"main": "running"}
    # A kubelet that was restarted meanwhile does not wait for ever.
    assert states(settled(pod, **slow)) == {"main": "running"}


def test_a_restart_takes_its_time_and_leaves_the_pod_unready_meanwhile() -> None:
    slow = {"pace": Pace(restart=2)}
    before = settled(body({"main": "a:1", "log": "b:1"}), **slow)
    changed = with_image(before, "log", "b:2")
    first = planned(changed, since_write=100, **slow)
    pod = patched(changed, first.status)
    assert first.again_after == 2
    assert states(pod) == {"main": "running", "log": "ContainerCreating"}
    assert only(pod, "log")["imageID"] == only(before, "log")["imageID"]
    assert (pod["status"]["phase"], conditions(pod)["Ready"]) == ("Running", "False")
    assert planned(pod, since_write=0.5, **slow).again_after == 1.5
    pod = patched(pod, planned(pod, since_write=2, **slow).status)
    assert (only(pod, "log")["restartCount"], conditions(pod)["Ready"]) == (1, "True")


# ---- the end


def deleted(pod: Any, grace: int, **metadata: Any) -> Any:
    """The Pod just after it was asked to go."""
    end = (NOW.replace(microsecond=0) + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
    change = {"deletionTimestamp": end, "deletionGracePeriodSeconds": grace} | metadata
    return pod | {"metadata": pod["metadata"] | change}


def test_a_deleted_pod_is_removed_with_one_request() -> None:
    assert planned(deleted(settled(body()), 30)) == PodPlan(remove=True)


def test_a_pod_that_was_never_started_is_removed_too() -> None:
    assert planned(deleted(body(), 30)) == PodPlan(remove=True)


def test_stopping_takes_its_time_but_never_longer_than_the_grace_period() -> None:
    pod = settled(body())
    assert planned(deleted(pod, 30), pace=Pace(stop=5), now=NOW + timedelta(seconds=1)).again_after == 3.5
    assert planned(deleted(pod, 30), pace=Pace(stop=5), now=NOW + timedelta(seconds=5)).remove
    assert planned(deleted(pod, 2), pace=Pace(stop=5)).again_after == 1.5
    assert planned(deleted(pod, 2), pace=Pace(stop=5), now=NOW + timedelta(seconds=2)).remove


def test_a_pod_that_a_finalizer_holds_is_reported_as_ended_and_released() -> None:
    pod = deleted(settled(body()), 30, finalizers=["example.com/hold"])
    todo = planned(pod)
    assert todo.remove
    pod = patched(pod, todo.status)
    assert (pod["status"]["phase"], conditions(pod)["Ready"], states(pod)) == (
        "Succeeded",
        "False",
        {"main": "terminated"},
    )
    # The API server has noted that the node is done with it: nothing is left to do.
    assert planned(deleted(pod, 0, finalizers=["example.com/hold"])) == PodPlan()


@given(
    st.lists(st.sampled_from(["a:1", "a:2", "b", f"c@sha256:{'0' * 64}"]), min_size=1, max_size=4),
    st.lists(st.booleans(), max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a:1", "a:2", "b"])), max_size=5),
    st.sampled_from([Pace(), Pace(1, 1, 1)]),
)
def test_every_pod_comes_to_rest_with_the_images_of_its_spec(
    images: list[str], sidecars: list[bool], changes: list[tuple[int, str]], pace: Pace
) -> None:
    inits = [
        {"name": f"i{n}", "image": "a:1"} | ({"restartPolicy": "Always"} if sidecar else {})
        for n, sidecar in enumerate(sidecars)
    ]
    pod = body({f"c{n}": image for n, image in enumerate(images)}, inits=inits)
    restarts = 0
    pod = settled(pod, pace=pace)
    for number, image in changes:
        name = f"c{number % len(images)}"
        restarts += not _same(pod, name, image)
        pod = settled(with_image(pod, name, image), pace=pace)
        assert conditions(pod)["Ready"] == "True"
        assert _same(pod, name, image)
    assert sum(status["restartCount"] for status in pod["status"]["containerStatuses"]) == restarts


def _same(pod: Any, name: str, image: str) -> bool:
    wanted = parse_image(image)
    return wanted is not None and only(pod, name)["image"] == wanted.full_name
