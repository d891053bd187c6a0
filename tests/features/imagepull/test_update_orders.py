"""IMG-105: jobs of workloads pull on nodes in the update order of the Pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.features.cloneset import reconcile as cloneset
from app.features.cloneset.feature import FEATURE as CLONE_SET_SLICE
from app.features.cloneset.types import CloneSet
from app.features.daemonset import reconcile as daemonset
from app.features.daemonset.feature import FEATURE as DAEMON_SET_SLICE
from app.features.daemonset.types import DaemonSet
from app.features.imagepull.defaults import job_with_defaults
from app.features.imagepull.plan.nodes import by_pods
from app.features.statefulset import reconcile as statefulset
from app.features.statefulset.feature import FEATURE as STATEFUL_SET_SLICE
from app.features.statefulset.types import StatefulSet
from app.framework.feature import Feature
from app.framework.watched import Watched
from app.kube.client import Client
from app.kube.objects import ObjectMeta, OwnerReference, Pod, PodSpec
from app.kube.resources import Resource
from app.pods.sorting import UpdateOrder
from tests.features.imagepull.world import JOBS, World, in_world
from tests.kit.features import context, part_of, stores_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


def pods(*named: tuple[str, str], **labels: str) -> list[Pod]:
    return [
        Pod(metadata=ObjectMeta(name, "default", labels=labels), spec=PodSpec(node_name=node)) for name, node in named
    ]


@pytest.mark.behaviour("IMG-105")
def test_nodes_are_ordered_by_their_pods() -> None:
    ordered = pods(("a", "n3"), ("b", "n1"), ("c", "n3"))
    assert by_pods(["n1", "n2", "n3", "n0"], ordered) == ("n3", "n1", "n0", "n2")


@pytest.mark.behaviour("IMG-105", "PM-169")
def test_a_workload_job_uses_the_order_of_the_workload() -> None:
    def order(owner: OwnerReference, found: Sequence[Pod]) -> Sequence[Pod] | None:
        return sorted(found, key=lambda pod: pod.metadata.name, reverse=True) if owner.name == "web" else None

    async def scenario(there: World) -> None:
        await there.nodes("n1", "n2", "n3")
        # An object with a missing owner would be collected.
        made = await there.client.create(CONFIG_MAPS, {"metadata": {"name": "web"}}, "default")
        uid = made["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": uid, "controller": True}
        for name, node in (("web-0", "n2"), ("web-1", "n3"), ("web-2", "n1")):
            await there.pod(name, node, app="web")
        asked: list[str] = []

        def pulled(node: str, image: str) -> str:
            asked.append(node)
            return "Succeeded"

        there.pull = pulled
        spec = {"image": "nginx:1.27", "podSelector": {"matchLabels": {"app": "web"}}, "completionPolicy": {}}
        body = job_with_defaults({"spec": {**spec, "parallelism": 1}})
        await there.create(JOBS, "ahead", body["spec"], ownerReferences=[owner])
        await there.counts("ahead", succeeded=3)
        assert asked == ["n1", "n3", "n2"]

    in_world(provided={UpdateOrder: order})(scenario)()


@pytest.mark.behaviour("IMG-105")
@pytest.mark.parametrize(
    ("slice_", "module", "watched", "model", "expected"),
    [
        (CLONE_SET_SLICE, cloneset, cloneset.CLONE_SETS, CloneSet, "web-10 web-2 web-9"),
        (STATEFUL_SET_SLICE, statefulset, statefulset.STATEFUL_SETS, StatefulSet, "web-10 web-9 web-2"),
        (DAEMON_SET_SLICE, daemonset, daemonset.DAEMON_SETS, DaemonSet, "web-9 web-2 web-10"),
    ],
    ids=["CloneSet", "StatefulSet", "DaemonSet"],
)
def test_each_kind_has_its_order(
    slice_: Feature, module: Any, watched: Watched[Any], model: Any, expected: str
) -> None:
    part, clock = part_of(slice_), VirtualClock()
    stores = stores_of(part)
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": {}, "updateStrategy": {}}
    metadata = {"name": "web", "namespace": "default", "uid": "w"}
    stores(watched).put(model.model_validate({"metadata": metadata, "spec": spec}))
    order = module.update_order_of(context(part, Client(MemoryServer(), clock), stores))
    found = pods(("web-2", "n2"), ("web-10", "n10"), ("web-9", "n9"))
    owner = OwnerReference("apps.kruise.io/v1beta1", model.__name__, "web", "w")
    ordered = order(owner, found)
    assert ordered is not None
    assert [pod.metadata.name for pod in ordered] == expected.split()
    assert order(OwnerReference(name="web", uid="another"), found) is None
    assert order(owner, []) is None
