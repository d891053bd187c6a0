"""A feature: its controllers, its admission, and what it provides to other features."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from pkgutil import resolve_name
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry

from app.api.kind import KindDefinition
from app.framework.commands import Commands, ExplainNode
from app.framework.options import Enabled, Flag, Gate
from app.framework.verbs import Verb
from app.framework.watched import Stores, Watched
from app.kube.admission import Handler, PolicyRule, Webhook
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.controller import DEFAULT_WORKERS, Reconcile, Watch
from app.kube.events import EventRecorder
from app.kube.selectors import Selector
from app.pods.admission import Guarded, PodMutator, PodValidator

if TYPE_CHECKING:
    from app.framework.dashboard import DashboardSection


@dataclass(frozen=True, slots=True)
class Protected:
    """Enables deletion protection (the label policy.kruise.io/delete-protection) for a kind.

    ``cascading`` names the check that runs before a deletion if the label's value is ``Cascading``: ``replicas`` checks
    ``spec.replicas``. If ``cascading`` is empty, nothing is checked.
    """

    kind: KindDefinition
    cascading: str = ""


# Declaration and dependencies of a controller.
#
# ControllerPart(
#     name="widget-controller",
#     watched=(WIDGETS, PODS),
#     make=widget_controller,          # ControllerContext → Reconciling
#     permissions=(...),               # beyond list and watch
#     workers_flag="widget-workers",
#     counters=(WidgetCounters,),
# )

T = TypeVar("T")

#: Creates metrics once per process, in the process's registry. Features that name the same function share the metrics,
#: so these must have a label that distinguishes the features.
Counters: TypeAlias = Callable[[CollectorRegistry], T]


class Flags(Protocol):
    """The flags of the process. All methods raise KeyError for an undeclared flag."""

    def text(self, name: str) -> str: ...

    def integer(self, name: str) -> int: ...

    def seconds(self, name: str) -> float:
        """Return the value of a duration flag in seconds, or the value of another numeric flag."""
        ...

    def boolean(self, name: str) -> bool: ...


class Counting(Protocol):
    """Looks up the metrics of the process."""

    def __call__(self, counters: Counters[T]) -> T:
        """Return the metrics created by this function."""
        ...


class Answers(Protocol):
    """Looks up what other features provide."""

    def __call__(self, protocol: type[T]) -> Sequence[T]:
        """Return all objects provided for the protocol; empty if there are none."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """Dependencies of a controller. ``client`` and ``events`` already carry the controller's name."""

    client: Client
    stores: Stores
    events: EventRecorder
    rng: Random
    own_namespace: str
    enabled: Enabled
    flags: Flags
    counters: Counting
    provided: Answers
    #: Whether this replica is the leader. Controllers run only on the leader; background tasks may run on any replica.
    leading: Callable[[], bool]
    #: Selects the namespaces whose new Pods are sent to the webhook; None if no Pods are sent.
    reviewed_namespaces: Selector | None = None


@dataclass(frozen=True, slots=True)
class Reconciling:
    """A controller's reconcile function, and the watches that map changes to keys."""

    reconcile: Reconcile
    watches: Sequence[Watch[Any]]


@dataclass(frozen=True, slots=True)
class ControllerPart:
    """One controller. It runs on the leader, if it has no gates or one of them is enabled."""

    name: str
    watched: tuple[Watched[Any], ...]
    make: Callable[[ControllerContext], Reconciling]
    #: Permissions beyond list and watch for the watched objects.
    permissions: tuple[PolicyRule, ...] = ()
    gates: tuple[str, ...] = ()
    workers: int = DEFAULT_WORKERS
    #: The flag for the number of concurrent reconciles; it need not be declared elsewhere.
    workers_flag: str = ""
    counters: tuple[Counters[Any], ...] = ()
    #: Source component of the controller's events; defaults to the controller's name.
    event_source: str = ""


class BackgroundTask(Protocol):
    """A task that runs alongside the controllers."""

    async def run(self) -> None:
        """Run until canceled."""
        ...

    def webhooks_registered(self, since: datetime) -> None:
        """Handle the registration of the webhooks. They may have been missing since the given time. Must not block."""
        ...


@dataclass(frozen=True, slots=True)
class BackgroundPart:
    """A task on every replica, in the process that writes to the cluster. Only the leader fills the task's caches."""

    name: str
    watched: tuple[Watched[Any], ...]
    make: Callable[[ControllerContext], BackgroundTask]
    permissions: tuple[PolicyRule, ...] = ()
    counters: tuple[Counters[Any], ...] = ()
    event_source: str = ""


@dataclass(frozen=True, slots=True)
class Provides:
    """An implementation of ``protocol`` (declared in ``app.pods``) for features that must not import this one.

    Consumers call ``context.provided(protocol)``.
    """

    protocol: type[Any]
    make: Callable[[ControllerContext], Any]
    watched: tuple[Watched[Any], ...] = ()
    permissions: tuple[PolicyRule, ...] = ()
    counters: tuple[Counters[Any], ...] = ()
    #: Source component of the implementation's events; defaults to the protocol's name.
    event_source: str = ""


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """Dependencies of admission handlers and steps.

    In standalone mode there is no cluster: ``client`` and ``events`` are None, and the stores are filled from files.
    """

    client: Client | None
    stores: Stores
    events: EventRecorder | None
    clock: Clock
    rng: Random
    own_namespace: str
    enabled: Enabled
    flags: Flags
    counters: Counting
    #: The operator's folder of policies.
    policies: Path | None = None


@dataclass(frozen=True, slots=True)
class Decisions:
    """The webhook handlers of a part, its Pod creation steps, and its Pod guards."""

    handlers: Sequence[Handler] = ()
    steps: Sequence[PodMutator] = ()
    guards: Sequence[PodValidator] = ()


@dataclass(frozen=True, slots=True)
class AdmissionPart:
    """Admission of a feature. Webhooks with the same name become one entry of a webhook configuration.

    ``webhooks`` are the declarations that ``make`` returns handlers for, or a function that returns them for the
    operator's folder of policies (which may be None).
    """

    make: Callable[[AdmissionContext], Decisions]
    webhooks: tuple[Webhook, ...] | Callable[[Path | None], tuple[Webhook, ...]] = ()
    #: Caches that must be synced before a request can be reviewed. They must be small and contain no Pods, because each
    #: process that serves reviews has its own copy.
    watched: tuple[Watched[Any], ...] = ()
    #: Additional objects that standalone mode reads from files; in a cluster they are requested when needed.
    files: tuple[Watched[Any], ...] = ()
    #: Permissions that the steps need beyond list and watch for the watched objects. Webhooks declare their own.
    permissions: tuple[PolicyRule, ...] = ()
    counters: tuple[Counters[Any], ...] = ()
    #: Source component of the part's events; empty if the part records none.
    event_source: str = ""
    #: If set, one of these gates must be enabled for the part to be active and its objects to be watched.
    gates: tuple[str, ...] = ()
    #: The Pods that its guards review.
    guarded: tuple[Guarded, ...] = ()

    def declared(self, policies: Path | None) -> tuple[Webhook, ...]:
        """Return the webhooks for the operator's folder of policies."""
        found = self.webhooks(policies) if callable(self.webhooks) else self.webhooks
        return tuple(dataclasses.replace(one, gates=self.gates) for one in found) if self.gates else found


@dataclass(frozen=True, slots=True)
class Feature:
    """Declaration of a feature, assigned to ``FEATURE`` in the ``feature.py`` of the feature's folder."""

    name: str
    kinds: tuple[KindDefinition, ...] = ()
    controllers: tuple[ControllerPart, ...] = ()
    admission: tuple[AdmissionPart, ...] = ()
    background: tuple[BackgroundPart, ...] = ()
    provides: tuple[Provides, ...] = ()
    #: Feature gates that the feature uses: those of OpenKruise by name, our own as declarations.
    gates: tuple[str | Gate, ...] = ()
    #: Flags that the feature uses, except each ``workers_flag``: those of OpenKruise by name, our own as declarations.
    flags: tuple[str | Flag, ...] = ()
    #: Kinds with deletion protection.
    protected: tuple[Protected, ...] = ()
    #: Commands of its kinds for ``pykruise rollout``, ``plan`` and ``explain``; imported when a command runs.
    commands: Callable[[], tuple[Commands, ...]] = tuple
    #: Explains its kinds for ``pykruise explain node``, if they have no other commands.
    explain_node: Callable[[], tuple[ExplainNode, ...]] = tuple
    #: Its own commands; imported when one runs.
    verbs: Callable[[], tuple[Verb, ...]] = tuple
    #: Dashboard section of its kinds; imported when the dashboard is served.
    dashboard: Callable[[], tuple[DashboardSection[Any], ...]] = tuple
    #: Kinds whose specs alone determine Pod admission; ``pykruise review --cluster`` reads their objects.
    judging_pods: tuple[KindDefinition, ...] = ()
    #: Kinds whose objects own Pods: while any exist, uninstalling is refused.
    workloads: tuple[KindDefinition, ...] = ()

    @property
    def counters(self) -> Iterable[Counters[Any]]:
        """Return the functions that create its metrics."""
        parts: tuple[ControllerPart | AdmissionPart | BackgroundPart | Provides, ...] = (
            *self.controllers,
            *self.admission,
            *self.background,
            *self.provides,
        )
        return dict.fromkeys(one for part in parts for one in part.counters)

    def running(self, enabled: Enabled) -> tuple[ControllerPart, ...]:
        """Return the controllers that run with these gates."""
        return tuple(part for part in self.controllers if is_on(part.gates, enabled))

    def judging(self, enabled: Enabled) -> tuple[AdmissionPart, ...]:
        """Return the admission parts that are active with these gates."""
        return tuple(part for part in self.admission if is_on(part.gates, enabled))

    def watched_for_admission(self, enabled: Enabled) -> Iterable[Watched[Any]]:
        """Return the objects watched by the processes that serve reviews."""
        return (one for part in self.judging(enabled) for one in part.watched)

    def watched_for_controllers(self, enabled: Enabled) -> Iterable[Watched[Any]]:
        """Return the objects that the process writing to the cluster watches."""
        return (one for part in self._working(enabled) for one in part.watched)

    def _working(self, enabled: Enabled) -> tuple[ControllerPart | BackgroundPart | Provides, ...]:
        return (*self.running(enabled), *self.background, *self.provides)

    def permissions(self, enabled: Enabled) -> Iterable[PolicyRule]:
        """Return the permissions that the feature needs with these gates, besides those of its webhooks and steps."""
        for working in self._working(enabled):
            yield from working.permissions
        for one in (*self.watched_for_admission(enabled), *self.watched_for_controllers(enabled)):
            yield one.permission


def lazily(path: str) -> Callable[[], tuple[Any, ...]]:
    """Return a function that imports an object, such as ``app.features.cloneset.commands:COMMANDS``."""
    return lambda: (resolve_name(path),)


def is_on(gates: tuple[str, ...], enabled: Enabled) -> bool:
    """Return whether a part with these gates is active: it has none, or at least one is enabled."""
    return not gates or any(map(enabled, gates))
