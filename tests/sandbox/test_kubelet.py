import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.images import parse_image
from app.kube.patches import merge_patch
from app.sandbox.kubelet.plan import PodInputs, PodPlan, PodRun, plan
from app.sandbox.kubelet.program import BEHAVIOUR, CRASH, UNREADY, Pace, script_error
from app.sandbox.kubelet.status import needs
from app.sandbox.kubelets import log_of
from app.sandbox.objects import Pod, decode_pod

NOW = datetime(2030, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
INPUTS = {"host_ip": "198.18.0.1", "pod_ip": "10.1.0.1", "now": NOW}


def body(containers: Any = None, *, inits: Any = (), status: Any = None, spec: Any = None, **metadata: Any) -> Any:
    """Return a Pod as JSON. Containers may be given as name → image."""
    containers = {"main": "nginx:1"} if containers is None else containers
    if isinstance(containers, dict):
        containers = [{"name": name, "image": image} for name, image in containers.items()]
    metadata = {"name": "web-0", "namespace": "shop", "uid": "u", "generation": 1} | metadata
    spec = {"nodeName": "node1", "containers": containers, "initContainers": list(inits)} | (spec or {})
    return {"metadata": metadata, "spec": spec, "status": status or {"phase": "Pending"}}


def patched(pod: Any, status: Mapping[str, Any]) -> Any:
    """Return the Pod after a strategic merge patch of its status, as an API server would."""
    change = dict(status)
    by_type = {c["type"]: c for c in pod["status"].get("conditions", ())}
    for condition in change.pop("conditions", ()):
        by_type[condition["type"]] = merge_patch(by_type.get(condition["type"], {}), condition)
    merged = merge_patch(pod["status"], change)
    if by_type:
        merged["conditions"] = list(by_type.values())
    # Encode and decode it, as the API server does.
    return json.loads(json.dumps(pod | {"status": merged}))


def decoded(pod: Any) -> Pod:
    return decode_pod(json.dumps(pod).encode())


def planned(pod: Any, run: PodRun | None = None, **inputs: Any) -> PodPlan:
    return plan(decoded(pod), PodInputs(**(INPUTS | inputs)), run)


class Node:
    """One Pod and its node. Planned writes are applied, and time passes on request."""

    def __init__(self, pod: Any, **inputs: Any) -> None:
        self.pod = pod
        self.inputs = INPUTS | inputs
        self.run: PodRun | None = None
        self.events: list[str] = []
        self.images: set[str] = set()
        self.removed = False
        self.again = 0.0

    def look(self) -> "Node":
        """Sync the Pod until there is nothing left to report at this time."""
        for _ in range(4):
            todo = planned(self.pod, self.run, has_image=self.images.__contains__, **self.inputs)
            self.run, self.again = todo.run, todo.again_after
            self.removed = self.removed or todo.remove
            self.events += [f"{event.reason} {event.message}" for event in todo.events]
            self.images.update(todo.pulled)
            if todo.clear_crash:
                self.pod["metadata"]["annotations"].pop(CRASH)
            if not todo.status:
                return self
            self.pod = patched(self.pod, todo.status)
        raise AssertionError(f"still changing: {todo.status}")

    def after(self, seconds: float) -> "Node":
        """Let time pass, syncing whenever the kubelet requests it."""
        self.look()
        end = self.inputs["now"] + timedelta(seconds=seconds)
        while self.again and self.inputs["now"] + timedelta(seconds=self.again) <= end:
            self.inputs["now"] += timedelta(seconds=self.again)
            self.look()
        self.inputs["now"] = end
        return self.look()

    def forget(self) -> "Node":
        """Restart the node. It keeps only the Pod's status."""
        self.run = None
        return self.look()


def settled(pod: Any, **inputs: Any) -> Any:
    """Return the Pod once its kubelet has nothing left to report."""
    return Node(pod, **inputs).after(20).pod


def conditions(pod: Any) -> dict[str, str]:
    return {c["type"]: c["status"] for c in pod["status"]["conditions"]}


def condition(pod: Any, type_: str = "Ready") -> Any:
    return next(c for c in pod["status"]["conditions"] if c["type"] == type_)


def states(pod: Any, field: str = "containerStatuses") -> dict[str, str]:
    """Return each container's state, with the reason why it waits."""
    found = {}
    for status in pod["status"].get(field, ()):
        [(name, detail)] = status["state"].items()
        found[status["name"]] = detail.get("reason", name) if name == "waiting" else name
    return found


def only(pod: Any, name: str = "main") -> Any:
    return next(s for s in pod["status"]["containerStatuses"] if s["name"] == name)


def test_one_patch_makes_a_bound_pod_ready() -> None:
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


def test_an_invalid_image_name_is_not_pulled() -> None:
    [status] = settled(body({"main": "NOT AN IMAGE"}))["status"]["containerStatuses"]
    assert status["state"]["waiting"]["reason"] == "InvalidImageName"


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
    # A running container does not depend on the key.
    assert states(settled(pod)) == {"first": "running", "second": "running"}


def test_an_optional_reference_blocks_nothing() -> None:
    optional = barrier("main", "p_0", optional=True)
    assert states(settled(body([optional]))) == {"main": "running"}
    all_keys = {"name": "main", "image": "a", "envFrom": [{"configMapRef": {"name": "web-0-barrier"}}]}
    assert states(settled(body([all_keys]))) == {"main": "CreateContainerConfigError"}
    assert states(settled(body([all_keys]), config_maps=config_maps())) == {"main": "running"}
    pod = body([optional, all_keys], inits=[barrier("prep", "x", "other")])
    assert needs(decoded(pod), "configmap") == {"web-0-barrier", "other"}


def test_a_waiting_init_container_blocks_the_rest() -> None:
    pod = settled(body(inits=[barrier("prep", "p_0"), {"name": "next", "image": "b"}]))
    assert states(pod, "initContainerStatuses") == {"prep": "CreateContainerConfigError", "next": "PodInitializing"}
    assert states(pod) == {"main": "PodInitializing"}
    assert conditions(pod)["Initialized"] == "False"
    assert condition(pod, "Initialized")["message"] == "containers with incomplete status: [prep next]"
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


def test_a_changed_image_restarts_only_that_container() -> None:
    before = settled(body({"main": "nginx:1", "log": "busybox:1"}))
    pod = settled(with_image(before, "log", "busybox:2"))
    assert only(pod, "main") == only(before, "main")
    log = only(pod, "log")
    assert (log["restartCount"], log["ready"], log["image"]) == (1, True, "docker.io/library/busybox:2")
    assert log["imageID"] != only(before, "log")["imageID"]
    assert log["containerID"] != only(before, "log")["containerID"]
    assert log["lastState"]["terminated"]["exitCode"] == 0
    assert pod["status"]["observedGeneration"] == 2
    # Changed and changed back: two restarts, and the original id.
    back = only(settled(with_image(pod, "log", "busybox:1")), "log")
    assert (back["restartCount"], back["imageID"]) == (2, only(before, "log")["imageID"])


def test_a_short_and_a_full_name_are_the_same_image() -> None:
    pod = settled(body())
    assert only(settled(with_image(pod, "main", "docker.io/library/nginx:1")))["restartCount"] == 0


def test_a_native_sidecar_restarts_and_a_finished_init_container_does_not() -> None:
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


def test_readiness_gates_keep_a_pod_unready_and_are_named() -> None:
    pod = settled(body(spec=GATES))
    assert conditions(pod)["ContainersReady"] == "True"
    ready = condition(pod)
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    missing = 'corresponding condition of pod readiness gate "a/{}" does not exist.'
    assert ready["message"] == f"{missing.format('x')}, {missing.format('y')}"
    opened = [{"type": "a/x", "status": "True"}, {"type": "a/y", "status": "False"}]
    pod = settled(patched(pod, {"conditions": opened}))
    assert condition(pod)["message"] == 'the status of pod readiness gate "a/y" is not "True", but False'
    pod = settled(patched(pod, {"conditions": [{"type": "a/y", "status": "True"}]}))
    ready = condition(pod)
    assert (ready["status"], "message" in ready, "reason" in ready) == ("True", False, False)
    assert conditions(pod)["a/x"] == "True"


def test_a_container_can_be_made_unready_on_purpose() -> None:
    pod = settled(body({"main": "a", "log": "b"}))
    pod["metadata"]["annotations"] = {UNREADY: "log, other"}
    pod = settled(pod)
    assert (only(pod, "main")["ready"], only(pod, "log")["ready"]) == (True, False)
    assert conditions(pod)["Ready"] == "False"
    assert condition(pod)["message"] == "containers with unready status: [log]"
    pod["metadata"]["annotations"] = {}
    assert conditions(settled(pod))["Ready"] == "True"


def test_a_transition_time_changes_only_with_the_status() -> None:
    pod = settled(body(spec=GATES))
    later = {"now": NOW + timedelta(hours=1)}
    pod = settled(patched(pod, {"conditions": [{"type": "a/x", "status": "True"}]}), **later)
    assert condition(pod)["lastTransitionTime"] == "2030-01-01T12:00:00Z"
    pod = settled(patched(pod, {"conditions": [{"type": "a/y", "status": "True"}]}), **later)
    times = [condition(pod, type_)["lastTransitionTime"] for type_ in ("Ready", "ContainersReady")]
    assert times == ["2030-01-01T13:00:00Z", "2030-01-01T12:00:00Z"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_left_alone(phase: str) -> None:
    todo = planned(body(status={"phase": phase}))
    assert (todo.status, todo.remove, todo.again_after) == ({}, False, 0)


# ---- pace


def test_containers_start_one_after_another_at_the_configured_pace() -> None:
    node = Node(body({"main": "a:1", "log": "b:1"}), pace=Pace(pull=1, start=3)).look()
    assert (node.again, states(node.pod)) == (1, {"main": "ContainerCreating", "log": "ContainerCreating"})
    assert node.pod["status"]["phase"] == "Pending"
    assert states(node.after(3.9).pod)["main"] == "ContainerCreating"
    assert states(node.after(0.1).pod) == {"main": "running", "log": "ContainerCreating"}
    assert states(node.after(4).pod) == {"main": "running", "log": "running"}
    assert node.pod["status"]["phase"] == "Running"
    # An image on the node is not pulled again.
    again = Node(body({"main": "a:1"}), pace=Pace(pull=1))
    again.images = node.images
    assert states(again.look().pod) == {"main": "running"}


def test_a_restarted_kubelet_continues() -> None:
    node = Node(body(), pace=Pace(start=3)).after(1)
    assert states(node.forget().after(3).pod) == {"main": "running"}
    before = only(node.pod)
    assert only(node.forget().after(100).pod) == before


def test_a_restart_takes_time_and_makes_the_pod_unready() -> None:
    before = settled(body({"main": "a:1", "log": "b:1"}))
    node = Node(with_image(before, "log", "b:2"), pace=Pace(restart=2)).look()
    assert node.again == 2
    assert states(node.pod) == {"main": "running", "log": "ContainerCreating"}
    assert only(node.pod, "log")["imageID"] == only(before, "log")["imageID"]
    assert (node.pod["status"]["phase"], conditions(node.pod)["Ready"]) == ("Running", "False")
    node.after(2)
    assert (only(node.pod, "log")["restartCount"], conditions(node.pod)["Ready"]) == (1, "True")


# ---- the end


def deleted(pod: Any, grace: int, **metadata: Any) -> Any:
    """Return the Pod just after its deletion was requested."""
    end = (NOW.replace(microsecond=0) + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
    change = {"deletionTimestamp": end, "deletionGracePeriodSeconds": grace} | metadata
    return pod | {"metadata": pod["metadata"] | change}


def test_a_deleted_pod_is_removed_with_one_request() -> None:
    todo = planned(deleted(settled(body()), 30))
    assert (todo.remove, todo.status) == (True, {})
    assert [event.message for event in todo.events] == ["Stopping container main"]


def test_a_pod_that_was_never_started_is_removed_too() -> None:
    assert planned(deleted(body(), 30)).remove


def test_stopping_takes_time_up_to_the_grace_period() -> None:
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
    assert (pod["status"]["phase"], conditions(pod)["Ready"]) == ("Succeeded", "False")
    assert states(pod) == {"main": "terminated"}
    # The API server has recorded the end, so nothing is left to do.
    todo = planned(deleted(pod, 0, finalizers=["example.com/hold"]))
    assert (todo.status, todo.remove) == ({}, False)


@given(
    st.lists(st.sampled_from(["a:1", "a:2", "b", f"c@sha256:{'0' * 64}"]), min_size=1, max_size=4),
    st.lists(st.booleans(), max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a:1", "a:2", "b"])), max_size=5),
    st.sampled_from([Pace(), Pace(1, 1, 1)]),
)
def test_every_pod_settles_with_the_images_of_its_spec(
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


# ---- commands, probes, crashes


def script(**scripts: Any) -> dict[str, Any]:
    return {"annotations": {BEHAVIOUR: json.dumps(scripts)}}


def commanded(line: str, **more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "busybox:1", "command": ["sh", "-c", line]} | more


def test_a_finished_container_restarts_with_backoff() -> None:
    node = Node(body([commanded("sleep 1; exit 3")]))
    assert states(node.after(0.5).pod) == {"main": "running"}
    # The first restart is immediate, the second after 10 s, the third after 20 s.
    assert only(node.after(1).pod)["restartCount"] == 1
    assert only(node.pod)["lastState"]["terminated"]["exitCode"] == 3
    assert states(node.after(1).pod) == {"main": "CrashLoopBackOff"}
    assert "back-off 10s restarting failed container=main" in only(node.pod)["state"]["waiting"]["message"]
    assert (node.pod["status"]["phase"], conditions(node.pod)["Ready"]) == ("Running", "False")
    assert (only(node.after(9.6).pod)["restartCount"], states(node.pod)) == (2, {"main": "running"})
    assert "back-off 20s" in only(node.after(1).pod)["state"]["waiting"]["message"]
    # A restarted node keeps the back-off; another image ends it.
    assert states(node.forget().after(10).pod) == {"main": "CrashLoopBackOff"}
    node.pod = with_image(node.pod, "main", "busybox:2")
    assert states(node.look().pod) == {"main": "running"}


@pytest.mark.parametrize(
    ("policy", "line", "phase", "restarts"),
    [
        pytest.param("Never", "sleep 5; exit 0", "Succeeded", 0, id="Never, well"),
        pytest.param("Never", "exit 2", "Failed", 0, id="Never, badly"),
        pytest.param("OnFailure", "echo done", "Succeeded", 0, id="OnFailure, well"),
        pytest.param("OnFailure", "sleep 1; false", "Running", 1, id="OnFailure, badly"),
    ],
)
def test_a_pod_ends_according_to_its_restart_policy(policy: str, line: str, phase: str, restarts: int) -> None:
    pod = Node(body([commanded(line)], spec={"restartPolicy": policy})).after(9).pod
    assert (pod["status"]["phase"], only(pod)["restartCount"]) == (phase, restarts)
    if phase != "Running":
        assert condition(pod)["reason"] == {"Succeeded": "PodCompleted", "Failed": "PodFailed"}[phase]


def test_sidecars_end_with_the_containers_of_a_job() -> None:
    inits = [{"name": "proxy", "image": "a", "restartPolicy": "Always"}]
    pod = Node(body([commanded("sleep 2")], inits=inits, spec={"restartPolicy": "Never"})).after(5).pod
    assert pod["status"]["phase"] == "Succeeded"
    assert states(pod, "initContainerStatuses") == {"proxy": "terminated"}


def test_a_failed_init_container_holds_back_or_fails_the_pod() -> None:
    inits = [{"name": "prep", "image": "a", "command": ["false"]}]
    pod = Node(body(inits=inits)).after(5).pod
    assert states(pod, "initContainerStatuses") == {"prep": "CrashLoopBackOff"}
    assert (states(pod), pod["status"]["phase"]) == ({"main": "PodInitializing"}, "Pending")
    pod = Node(body(inits=inits, spec={"restartPolicy": "Never"})).after(5).pod
    assert pod["status"]["phase"] == "Failed"


def test_a_failed_image_pull_is_retried_with_backoff() -> None:
    node = Node(body({"main": "registry.invalid/a:1"})).look()
    assert states(node.pod) == {"main": "ErrImagePull"}
    assert "lookup registry.invalid: no such host" in only(node.pod)["state"]["waiting"]["message"]
    assert states(node.after(1).pod) == {"main": "ImagePullBackOff"}
    assert states(node.after(9).pod) == {"main": "ErrImagePull"}
    assert states(node.after(19).pod) == {"main": "ImagePullBackOff"}
    assert states(node.after(1).pod) == {"main": "ErrImagePull"}
    assert node.events.count('Pulling Pulling image "registry.invalid/a:1"') == 3
    node.pod = with_image(node.pod, "main", "nginx:1")
    assert states(node.look().pod) == {"main": "running"}
    assert only(node.pod)["restartCount"] == 0


def test_probes_run_on_schedule() -> None:
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 2, "initialDelaySeconds": 1}
    line = "sleep 4; touch /tmp/ready; sleep 6; rm /tmp/ready; sleep infinity"
    node = Node(body([commanded(line, readinessProbe=probe | {"failureThreshold": 2})]))
    seen = []
    for _ in range(20):
        seen.append(only(node.after(1).pod)["ready"])
    # Probed at 1, 3, 5 …: serving from 4 to 10, and unready after the second failure, at 13.
    assert [second + 1 for second, ready in enumerate(seen) if ready] == [5, 6, 7, 8, 9, 10, 11, 12]
    # Nothing can change any more, so there are no more probes.
    assert node.again == 0


def test_failed_liveness_and_startup_probes_restart_the_container() -> None:
    live = {"httpGet": {"port": 80}, "periodSeconds": 1, "failureThreshold": 2}
    scripted = {"aliveUntil": 5, "startedAfter": 3}
    start = {"httpGet": {"port": 80}, "periodSeconds": 1, "failureThreshold": 10}
    container = {"name": "main", "image": "a", "livenessProbe": live, "startupProbe": start}
    node = Node(body([container], **script(main=scripted)))
    assert (only(node.after(2).pod)["started"], only(node.pod)["ready"]) == (False, False)
    assert (only(node.after(1).pod)["started"], only(node.pod)["ready"]) == (True, True)
    assert only(node.after(2.5).pod)["restartCount"] == 0
    assert only(node.after(0.5).pod)["restartCount"] == 1
    assert "Killing Container main failed liveness probe, will be restarted" in node.events
    never = {"startedAfter": 99}
    node = Node(body([container | {"startupProbe": start | {"failureThreshold": 2}}], **script(main=never)))
    assert only(node.after(1.5).pod)["restartCount"] == 1
    assert "Killing Container main failed startup probe, will be restarted" in node.events


def test_readiness_can_be_scripted_without_a_probe() -> None:
    node = Node(body(**script(**{"*": {"readyAfter": 3, "readyUntil": 8}})))
    ready = [only(node.after(1).pod)["ready"] for _ in range(10)]
    assert [second + 1 for second, one in enumerate(ready) if one] == [3, 4, 5, 6, 7]


def test_a_requested_crash_happens_once() -> None:
    node = Node(settled(body({"main": "a", "log": "b"}))).look()
    node.pod["metadata"]["annotations"] = {CRASH: "log"}
    node.after(5)
    assert [s["restartCount"] for s in node.pod["status"]["containerStatuses"]] == [0, 1]
    assert only(node.pod, "log")["lastState"]["terminated"]["exitCode"] == 137
    assert CRASH not in node.pod["metadata"]["annotations"]


def test_lifecycle_hooks_delay_start_and_stop() -> None:
    hooks = {"postStart": {"exec": {"command": ["sleep", "2"]}}, "preStop": {"exec": {"command": ["sleep", "5"]}}}
    node = Node(body([{"name": "main", "image": "a", "lifecycle": hooks}])).after(1.9)
    assert states(node.pod) == {"main": "ContainerCreating"}
    pod = node.after(0.1).pod
    assert states(pod) == {"main": "running"}
    assert planned(deleted(pod, 30), now=NOW).again_after == 4.5
    failing = {"postStart": {"exec": {"command": ["false"]}}}
    node = Node(body([{"name": "main", "image": "a", "lifecycle": failing}])).after(1)
    assert states(node.pod) == {"main": "CrashLoopBackOff"}
    assert "FailedPostStartHook PostStartHook failed" in node.events


def test_a_container_that_ignores_sigterm_is_killed_after_the_grace_period() -> None:
    pod = deleted(settled(body([commanded("while true; do sleep 1; done")])), 10, finalizers=["a/b"])
    assert planned(pod).again_after == 9.5
    node = Node(pod, now=NOW + timedelta(seconds=10)).look()
    assert only(node.pod)["state"]["terminated"]["exitCode"] == 137
    assert (node.pod["status"]["phase"], node.removed) == ("Failed", True)


def test_a_resize_in_place_restarts_only_where_the_policy_says_so() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    pod = settled(body([{"name": "main", "image": "a", "resources": {}, "resizePolicy": policy}]))
    for count, requests in ((0, {"cpu": "1"}), (1, {"cpu": "1", "memory": "1Gi"})):
        pod["spec"]["containers"][0]["resources"] = {"requests": requests}
        pod = settled(pod)
        status = only(pod)
        assert (status["restartCount"], status["allocatedResources"]) == (count, requests)


def test_a_container_waits_for_a_missing_secret() -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    node = Node(body([{"name": "main", "image": "a", "env": env}])).look()
    assert only(node.pod)["state"]["waiting"]["message"] == 'secret "s" not found'
    node.inputs["secrets"] = lambda namespace, name: {"k": "dmFsdWU="}
    assert states(node.look().pod) == {"main": "running"}
    assert 'Failed Error: secret "s" not found' in node.events


def test_logs_are_what_the_command_prints() -> None:
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
    ]
    line = "echo I am $NAME of ${TEAM}; while true; do echo tick; sleep 10; done"
    node = Node(body([commanded(line, env=env)], labels={"team": "blue"})).after(25)
    inputs = PodInputs(**node.inputs)
    text = log_of(decoded(node.pod), inputs)
    assert text.splitlines() == ["I am web-0 of blue", "tick", "tick", "tick"]
    with pytest.raises(LookupError, match="previous terminated container"):
        log_of(decoded(node.pod), inputs, previous=True)
    with pytest.raises(LookupError, match="container x is not valid for pod web-0"):
        log_of(decoded(node.pod), inputs, "x")
    with pytest.raises(LookupError, match="is waiting to start"):
        log_of(decoded(body()), inputs)


def test_an_unknown_annotation_is_ignored_and_reported() -> None:
    pod = body(annotations={BEHAVIOUR: '{"main": {"readyAfter": "soon"}}'})
    assert states(settled(pod)) == {"main": "running"}
    assert "Expected `float`, got `str` - at `$[...].readyAfter`" in script_error(decoded(pod))


@pytest.mark.parametrize(("path", "ready"), [("/tmp/ready", False), ("/etc/hostname", True)])
def test_an_untouched_file_exists_if_it_is_part_of_the_image(path: str, ready: bool) -> None:
    probe = {"exec": {"command": ["test", "-e", path]}, "periodSeconds": 1}
    assert only(Node(body([commanded("sleep 1h", readinessProbe=probe)])).after(5).pod)["ready"] is ready


def test_ephemeral_containers_run_once_beside_the_others() -> None:
    node = Node(body())
    node.after(5)
    added = [
        {"name": "look", "image": "busybox:1", "command": ["sleep", "3"]},
        {"name": "stay", "image": "busybox:1", "targetContainerName": "main"},
    ]
    node.pod["spec"]["ephemeralContainers"] = added
    field = "ephemeralContainerStatuses"
    assert states(node.look().pod, field) == {"look": "running", "stay": "running"}
    node.after(60)
    assert states(node.pod, field) == {"look": "terminated", "stay": "running"}
    assert [(one["restartCount"], one["ready"]) for one in node.pod["status"][field]] == [(0, False), (0, False)]
    assert (node.pod["status"]["phase"], conditions(node.pod)["Ready"]) == ("Running", "True")
    assert states(node.forget().pod, field) == {"look": "terminated", "stay": "running"}
    # A strategic merge patch prepends new items.
    node.pod["spec"]["ephemeralContainers"] = [{"name": "new", "image": "busybox:1", "command": ["sleep", "3"]}, *added]
    node.after(60)
    assert states(node.pod, field) == {"new": "terminated", "look": "terminated", "stay": "running"}
