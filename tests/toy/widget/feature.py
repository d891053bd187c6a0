"""The declaration of the Widget feature."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from app.framework.dashboard import DashboardSection, Row, Shown, Stored, mapping, text
from app.framework.feature import (
    AdmissionContext,
    AdmissionPart,
    ControllerContext,
    ControllerPart,
    Decisions,
    Feature,
    Protected,
    Reconciling,
)
from app.framework.options import Gate
from app.framework.verbs import Call, Verb
from app.framework.watched import PODS, Watched
from app.kube.admission import PolicyRule
from app.kube.controller import Watch, to_self
from app.kube.errors import CommandError
from app.kube.resources import ObjectKey
from tests.toy.widget import webhooks
from tests.toy.widget.kind import WIDGET
from tests.toy.widget.reconcile import WidgetReconciler, pods_created
from tests.toy.widget.types import Widget

NAME: Final = "widget-controller"
WIDGETS: Final = Watched.kind(WIDGET, Widget)


def widget_controller(context: ControllerContext) -> Reconciling:
    """Return the controller and its watches."""
    widgets, pods = context.stores(WIDGETS), context.stores(PODS)
    counter = context.counters(pods_created)
    reconciler = WidgetReconciler(context.client, widgets, pods, context.events, counter)
    return Reconciling(reconciler, [Watch(widgets, to_self), Watch(pods, reconciler.keys_for_pod)])


def decisions(_context: AdmissionContext) -> Decisions:
    """Return the handlers of both webhooks."""
    return Decisions(webhooks.handlers())


async def paint(call: Call) -> int:
    """The verb ``paint NAME COLOR``."""
    if len(call.arguments) != 2:
        raise CommandError(f"paint {' '.join(call.arguments)}: expected NAME COLOR")
    name, color = call.arguments
    await call.client.patch(WIDGET.resource(), name, {"spec": {"color": color}}, call.namespace)
    call.say(f"widget.{WIDGET.group}/{name} painted")
    return 0


def row(stored: Stored, _lacking: Collection[ObjectKey]) -> Row:
    """Return a Widget's row on the dashboard."""
    metadata = mapping(stored, "metadata")
    color = text(mapping(stored, "spec"), "color")
    return Row(namespace=text(metadata, "namespace"), name=text(metadata, "name"), shown=Shown(message=color))


FEATURE: Final = Feature(
    name="widget",
    kinds=(WIDGET,),
    controllers=(
        ControllerPart(
            NAME,
            watched=(WIDGETS, PODS),
            make=widget_controller,
            permissions=(
                PolicyRule(("get",), (WIDGET.group,), ("widgets",)),
                PolicyRule(("patch",), (WIDGET.group,), ("widgets/status",)),
                PolicyRule(("update",), (WIDGET.group,), ("widgets/finalizers",)),
                PolicyRule(("create", "delete"), ("",), ("pods",)),
            ),
            gates=("Widgets", "KruiseDaemon"),
            workers_flag="widget-workers",
            counters=(pods_created,),
        ),
    ),
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    gates=(Gate("Widgets", "Widgets are reconciled"),),
    protected=(Protected(WIDGET, "replicas"),),
    workloads=(WIDGET,),
    dashboard=lambda: (DashboardSection("widgets", "Widgets", WIDGET, Row, row),),
    verbs=lambda: (Verb("paint", "Give a Widget another color.", "NAME COLOR", (), paint),),
)
