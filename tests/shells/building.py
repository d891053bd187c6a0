"""Parts of cases: controllers as their features declare them, and objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry

from app.api.kind import find_kind
from app.framework.feature import ControllerPart
from app.kube.client import Client
from app.kube.controller import Controller
from app.kube.events import EventRecorder
from app.kube.resources import PODS, Resource
from app.manager.features import features
from app.manager.gates import GATES
from app.pods.disruption_budget import LeastAvailable
from tests.kit.features import context, stores_of
from tests.kit.objects import owner_of
from tests.shells.checks import Case, Edit, create
from tests.shells.world import Running, World

Json = dict[str, Any]
ALL_GATES: Final = ",".join(f"{name}=true" for name in GATES)


def parts() -> dict[str, ControllerPart]:
    """Return every controller that a feature declares, by name."""
    return {part.name: part for one in features() for part in one.controllers}


def controller(name: str) -> Callable[[World, Client], Running]:
    """Return a function that starts the named controller."""
    part = parts()[name]

    def start(world: World, client: Client) -> Running:
        stores = stores_of(part)
        events = EventRecorder(client, part.name)
        registry = CollectorRegistry()
        provided = {LeastAvailable: lambda *_: 1}
        given = context(
            part, client, stores, gates=ALL_GATES, events=events, rng=world.rng, provided=provided, registry=registry
        )
        made = part.make(given)
        loop = Controller(part.name, client.clock, made.watches, made.reconcile, workers=world.workers)
        watched = {one.key: one for one in part.watched}
        return Running([loop], [loop.run], [(one, stores(one)) for one in watched.values()], [events], registry)

    return start


def ours(kind: str, group: str = "apps") -> Resource:
    for version in ("v1beta1", "v1alpha1"):
        if (found := find_kind(f"{group}.kruise.io/{version}", kind)) is not None:
            return found.resource()
    raise LookupError(kind)


def template(image: str = "nginx:1", labels: Json | None = None, cpu: str = "", **spec: Any) -> Json:
    resources = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    containers = [{"name": "main", "image": image, **resources}]
    return {"metadata": {"labels": {"app": "web", **(labels or {})}}, "spec": {"containers": containers, **spec}}


def named(name: str, spec: Json, **metadata: Any) -> Json:
    """Return an object with this name and spec."""
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def pod(name: str, annotations: Json | None = None, **spec: Any) -> Json:
    metadata = {"labels": {"app": "web"}, **({"annotations": annotations} if annotations else {})}
    return named(name, {**template()["spec"], **spec}, **metadata)


def case_of(name: str, objects: Sequence[tuple[Resource, Json]], edits: Mapping[str, Edit], **more: Any) -> Case:
    """Return the case of the named controller."""
    return Case(name, controller(name), objects, edits, **more)


def owned(body: Json, owner: Json) -> Json:
    """Return ``body`` with ``owner`` as its controller."""
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [owner_of(owner)]}}


def owned_pods(resource: Resource, *pods: Json) -> Edit:
    """Return an edit that creates Pods of the only object of a resource."""

    async def edit(world: World) -> None:
        (owner,) = world.objects(resource)
        for one in pods:
            await create(PODS, owned(one, owner))(world)

    return edit


SELECTOR: Final = {"matchLabels": {"app": "web"}}
CLONESETS, BROADCASTJOBS, EPHEMERALJOBS = ours("CloneSet"), ours("BroadcastJob"), ours("EphemeralJob")
CLAIM: Final = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def during(seconds: float, edit: Edit) -> Edit:
    """Return an edit that also lets the cluster run for some seconds."""

    async def both(world: World) -> None:
        await edit(world)
        end = world.clock.monotonic() + seconds
        while world.clock.monotonic() < end:
            world.play()
            await world.clock.sleep(1.0)

    return both
