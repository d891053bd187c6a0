"""Invariants of in-place updates under any sequence of template changes, restarts and refreshes."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api import names
from app.kube.objects import Pod
from app.pods.inplace.completion import is_update_complete
from app.pods.inplace.state import is_in_grace, update_state
from app.pods.inplace.steps import RefreshAction, refresh, start, unready_patch
from tests.nightly import examples
from tests.pods.inplace.pods import NOW, container, later, patched, pod, possible, raw_pod, restarted, template

NAMES = ("a", "b", "c")
PRIORITIES = {"a": 3, "b": 1}


def versions(images: tuple[int, ...], annotation: int, cpu: int) -> dict[str, Any]:
    containers = [
        container(name, f"nginx:{image}", resources={"requests": {"cpu": str(cpu)}})
        for name, image in zip(NAMES, images, strict=True)
    ]
    return template(*containers, annotations={"v": str(annotation)} if annotation else {})


class Node:
    """A Pod, its kubelet, and the template that its workload wants."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.target, self.count, self.now = first, 0, NOW
        self.templates = {"web-old": first}
        self.raw = raw_pod(first, priorities=PRIORITIES)

    def change(self, new: dict[str, Any], grace: int) -> None:
        old = self.templates[self.raw["metadata"]["labels"]["controller-revision-hash"]]
        self.count += 1
        revision = f"web-{self.count}"
        self.templates[revision] = new
        spec = msgspec.structs.replace(possible(old, new, grace=grace), revision=revision)
        self.raw = patched(self.raw, unready_patch(pod(self.raw), spec, self.now))
        begin = start(pod(self.raw), spec, self.now, labels={names.CONTROLLER_REVISION_HASH: revision})
        self.raw = patched(self.raw, begin.patch)
        self.raw = patched(self.raw, begin.resize)
        self.target = new

    def restart(self, name: str, ready: bool) -> None:
        self.raw = restarted(self.raw, name, ready=ready)

    def refresh(self) -> RefreshAction:
        step = refresh(pod(self.raw), self.now, vertical_scaling=True)
        if step.status is not None:
            self.raw = patched(self.raw, step.status)
        else:
            self.raw = patched(patched(self.raw, step.patch), step.resize)
        return step.action

    def check(self) -> None:
        seen = pod(self.raw)
        condition = seen.condition("InPlaceUpdateReady")
        assert condition is not None
        images = {item.name: item.image for item in seen.spec.containers}
        running = {item.name: item.image.removeprefix("docker.io/library/") for item in seen.status.container_statuses}
        if condition.status == "True":
            assert running == images, "traffic while a container is still to be restarted"
        complete = is_update_complete(seen, vertical_scaling=True)
        assert not (complete and running != images)
        state = update_state(seen)
        if complete and not is_in_grace(seen):
            self.check_target(seen)
        if state is not None and state.has_next:
            waiting = set(state.waiting().containers)
            batch = (
                set(state.container_batches_record[-1].containers or ()) if state.container_batches_record else set()
            )
            assert not waiting & batch
            for name in waiting:
                assert all(PRIORITIES.get(name, 0) <= PRIORITIES[other] for other in batch & PRIORITIES.keys())

    def check_target(self, seen: Pod) -> None:
        wanted = {item["name"]: item for item in self.target["spec"]["containers"]}
        for item in seen.spec.containers:
            assert item.image == wanted[item.name]["image"]
            assert item.resources.requests == wanted[item.name]["resources"]["requests"]
        assert seen.metadata.annotations.get("v") == (self.target["metadata"].get("annotations") or {}).get("v")


_template = st.builds(versions, st.tuples(*[st.integers(1, 3)] * 3), st.integers(0, 2), st.integers(1, 2))
_change = st.tuples(st.just("change"), _template, st.sampled_from([0, 0, 10]))
_restart = st.tuples(st.just("restart"), st.sampled_from(NAMES), st.booleans())
_step = st.one_of(_change, _restart, st.tuples(st.just("refresh")), st.tuples(st.just("time"), st.integers(1, 12)))


@settings(max_examples=examples(100), deadline=None)
@given(_template, st.lists(_step, max_size=14))
def test_a_pod_reaches_its_last_template_without_traffic_during_updates(first: Any, steps: list[Any]) -> None:
    node = Node(first)
    for step in steps:
        match step:
            case ("change", new, grace):
                node.change(new, grace)
            case ("restart", name, ready):
                node.restart(name, ready)
            case ("refresh",):
                node.refresh()
            case ("time", seconds):
                node.now = later(seconds + (node.now - NOW).total_seconds())
        node.check()
    # Now the kubelet restarts all containers.
    for _ in range(12):
        if is_update_complete(pod(node.raw), vertical_scaling=True) and node.refresh() is RefreshAction.NOTHING:
            break
        node.now = later(20 + (node.now - NOW).total_seconds())
        node.refresh()
        node.check()
        for name in NAMES:
            node.restart(name, ready=True)
        node.check()
    seen = pod(node.raw)
    assert is_update_complete(seen, vertical_scaling=True)
    assert refresh(seen, node.now, vertical_scaling=True).action is RefreshAction.NOTHING
    node.check_target(seen)
