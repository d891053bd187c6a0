"""The controller of Widgets, which carries out their plans."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter

from app.kube.client import Client
from app.kube.controller import Result, to_controller
from app.kube.errors import AlreadyExists, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.expectations import ScaleAction, ScaleExpectations
from app.kube.objects import Pod
from app.kube.resources import PODS, ObjectKey
from app.kube.statuses import newest_status, write_status
from app.kube.store import Change, Store
from app.pods.predicates import BY_CONTROLLER, Owner, controller_reference
from tests.toy.widget.kind import WIDGET
from tests.toy.widget.plan import plan
from tests.toy.widget.types import Widget

WIDGETS = WIDGET.resource()


def pods_created(registry: CollectorRegistry) -> Counter:
    """Return the counter of created Pods."""
    return Counter("toy_pods_created", "Pods created for Widgets.", ["namespace"], registry=registry)


class WidgetReconciler:
    """Keeps the Pods of all Widgets."""

    def __init__(
        self, client: Client, widgets: Store[Widget], pods: Store[Pod], events: EventRecorder, created: Counter
    ) -> None:
        self._client = client
        self._widgets = widgets
        self._pods = pods
        self._events = events
        self._created = created
        self._expected: ScaleExpectations[str] = ScaleExpectations(client.clock)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Yield the key of the Widget that controls the Pod."""
        controller = change.object.metadata.controller
        if controller is not None:
            action = ScaleAction.CREATE if change.new is not None else ScaleAction.DELETE
            self._expected.observe(controller.uid, action, change.object.metadata.name)
        return to_controller(WIDGETS)(change)

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Create and delete Pods, then write the status."""
        widget = self._widgets.by_key(key)
        if widget is None or widget.deleting:
            return None
        uid = widget.metadata.uid
        if (missing := self._expected.unsatisfied(uid)) is not None:
            return Result(requeue_after=missing.remaining(300.0))
        pods = [
            pod.metadata.name
            for pod in self._pods.by_index(BY_CONTROLLER, Owner.of(WIDGETS, widget.metadata).index_key)
        ]
        found = plan(widget.name, widget.spec.replicas or 0, pods)
        for name in found.create:
            await self._create(widget, name)
        for name in found.delete:
            await self._delete(widget, name)
        await write_status(
            self._client,
            WIDGETS,
            widget.metadata,
            newest_status(widget, None),
            lambda present: {"pods": len(pods)} if present.get("pods") != len(pods) else {},
        )
        return None

    async def _create(self, widget: Widget, name: str) -> None:
        owner = controller_reference(WIDGETS.api_version, WIDGETS.kind, widget.name, widget.metadata.uid)
        body = {
            "metadata": {"name": name, "labels": {"color": widget.spec.color}, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "main", "image": "widget:1"}]},
        }
        self._expected.expect(widget.metadata.uid, ScaleAction.CREATE, name)
        try:
            await self._client.create(PODS, body, widget.metadata.namespace)
        except BaseException as error:
            self._expected.observe(widget.metadata.uid, ScaleAction.CREATE, name)
            if not isinstance(error, AlreadyExists):
                raise
        else:
            self._created.labels(widget.metadata.namespace).inc()
            self._events.event(reference(WIDGETS, widget), "Normal", "PodCreated", f"created Pod {name}")

    async def _delete(self, widget: Widget, name: str) -> None:
        self._expected.expect(widget.metadata.uid, ScaleAction.DELETE, name)
        try:
            await self._client.delete(PODS, name, widget.metadata.namespace)
        except BaseException as error:
            self._expected.observe(widget.metadata.uid, ScaleAction.DELETE, name)
            if not isinstance(error, NotFound):
                raise
