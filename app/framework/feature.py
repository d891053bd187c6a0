"""A feature: its controllers, its admission, and what it provides to others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry

from app.api.kind import KindDefinition
from app.framework.commands import Commands, ExplainNode, Verb
from app.framework.options import Enabled, Flag, Gate
from app.framework.verbs import LongVerb
from app.framework.watched import Stores, Watched
from app.kube.admission import Handler, PolicyRule, Webhook
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.controller import Reconcile, Watch
from app.kube.events import EventRecorder
from app.kube.selectors import Selector
from app.pods.admission import Guarded, PodMutator, PodValidator

if TYPE_CHECKING:
    from app.framework.dashboard import DashboardSection


@dataclass(frozen=True, slots=True)
class Protected:
    """The label policy.kruise.io/delete-protection is obeyed for objects of this kind.

    ``cascading``: what the value ``Cascading`` looks at before it lets an object go: ``replicas`` (``spec.replicas``),
    or nothing.
    """

    kind: KindDefinition
    cascading: str = ""


# A controller as a feature declares it, and what it is given to be made from.
#
# ControllerPart(
#     name="widget-controller",
#     watched=(WIDGETS, PODS),
#     make=widget_controller,          # ControllerContext → Reconciling
#     permissions=(...),               # beside listing and watching what is watched
#     workers_flag="widget-workers",
#     counters=(WidgetCounters,),
# )

T = TypeVar("T")

#: Makes something that counts, once per process, in the process's registry. Two features that name the same one share
#: it, so it must have a label that tells them apart.
Counters: TypeAlias = Callable[[CollectorRegistry], T]


class Flags(Protocol):
    """The flags of this start. All raise KeyError for a flag nobody declared."""

    def text(self, name: str) -> str:
        """A flag that holds text."""
        ...

    def integer(self, name: str) -> int:
        """A flag that holds an integer."""
        ...

    def seconds(self, name: str) -> float:
        """A flag that holds a duration or another number."""
        ...

    def boolean(self, name: str) -> bool:
        """A flag that is on or off."""
        ...


class Counting(Protocol):
    """What counts in this process."""

    def __call__(self, counters: Counters[T]) -> T:
        """The one that these counters made."""
        ...


class Answers(Protocol):
    """What other features provide."""

    def __call__(self, protocol: type[T]) -> Sequence[T]:
        """All that features provide of this protocol; nothing where none does."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What a controller is made from. ``client`` and ``events`` carry its name already."""

    client: Client
    stores: Stores
    events: EventRecorder
    rng: Random
    own_namespace: str
    enabled: Enabled
    flags: Flags
    counters: Counting
    provided: Answers
    #: Whether this replica holds the Lease. Controllers run only then; background tasks may run before.
    leading: Callable[[], bool]
    #: The namespaces whose new Pods are sent to our webhook; None: no Pod is.
    reviewed_namespaces: Selector | None = None


@dataclass(frozen=True, slots=True)
class Reconciling:
    """A controller's reconcile function, and which changes mean work on which keys."""

    reconcile: Reconcile
    watches: Sequence[Watch[Any]]


@dataclass(frozen=True, slots=True)
class ControllerPart:
    """One controller. It runs in the replica that leads, if it has no gates or one of them is on."""

    name: str
    watched: tuple[Watched[Any], ...]
    make: Callable[[ControllerContext], Reconciling]
    #: What it needs beside listing and watching what is watched.
    permissions: tuple[PolicyRule, ...] = ()
    gates: tuple[str, ...] = ()
    workers: int = 3
    #: The flag that says how many keys it works on at once; it need not be declared elsewhere.
    workers_flag: str = ""
    counters: tuple[Counters[Any], ...] = ()
    #: The component that its events name; empty: its own name.
    event_source: str = ""


class BackgroundTask(Protocol):
    """Something that runs beside the controllers."""

    async def run(self) -> None:
        """Work until cancelled."""
        ...

    def webhooks_registered(self, since: datetime) -> None:
        """The webhooks are registered, and may not have been since then. Does not wait."""
        ...


@dataclass(frozen=True, slots=True)
class BackgroundPart:
    """A task of the process that writes to the cluster, whether it leads or not. Its caches are filled only when it
    leads."""

    name: str
    watched: tuple[Watched[Any], ...]
    make: Callable[[ControllerContext], BackgroundTask]
    permissions: tuple[PolicyRule, ...] = ()
    counters: tuple[Counters[Any], ...] = ()
    event_source: str = ""


@dataclass(frozen=True, slots=True)
class Provides:
    """What a feature does for others that must not import it: an object of ``protocol``, which stands in ``app.pods``.

    Whoever needs it asks ``context.provided(protocol)``.
    """

    protocol: type[Any]
    make: Callable[[ControllerContext], Any]
    watched: tuple[Watched[Any], ...] = ()
    permissions: tuple[PolicyRule, ...] = ()
    counters: tuple[Counters[Any], ...] = ()
    #: The component that its events name; empty: the protocol's name.
    event_source: str = ""


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """What handlers and steps are made from.

    In standalone mode there is no cluster: ``client`` and ``events`` are None, and the stores hold what files say.
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
    """The functions that answer for the webhooks of a part, its steps of Pod creation, and its guards of Pods."""

    handlers: Sequence[Handler] = ()
    steps: Sequence[PodMutator] = ()
    guards: Sequence[PodValidator] = ()


@dataclass(frozen=True, slots=True)
class AdmissionPart:
    """What a feature does in admission. Several webhooks may have one name: they become one entry.

    ``webhooks`` are the declarations that ``make`` returns handlers for; a function where they depend on the operator's
    folder of policies (which may be None).
    """

    make: Callable[[AdmissionContext], Decisions]
    webhooks: tuple[Webhook, ...] | Callable[[Path | None], tuple[Webhook, ...]] = ()
    #: Caches that must be filled before a review can be judged. Each process that answers reviews has its own, so they
    #: must stay small: no Pods.
    watched: tuple[Watched[Any], ...] = ()
    #: Further objects that standalone mode takes from files; with a cluster they are read when they are asked for.
    files: tuple[Watched[Any], ...] = ()
    #: What steps read and write on the API server, beside what is watched; a webhook has its own permissions.
    permissions: tuple[PolicyRule, ...] = ()
    counters: tuple[Counters[Any], ...] = ()
    #: The component that its events name; empty: it writes none.
    event_source: str = ""
    #: If there are any, one of them must be on for the part to exist; without it nothing of it is watched.
    gates: tuple[str, ...] = ()
    #: The Pods that its guards are asked about.
    guarded: tuple[Guarded, ...] = ()

    def declared(self, policies: Path | None) -> tuple[Webhook, ...]:
        """The webhooks, given the operator's folder of policies."""
        found = self.webhooks(policies) if callable(self.webhooks) else self.webhooks
        return tuple(dataclasses.replace(one, gates=self.gates) for one in found) if self.gates else found


@dataclass(frozen=True, slots=True)
class Feature:
    """The declaration of a feature; ``FEATURE`` in the ``feature.py`` of its folder."""

    name: str
    kinds: tuple[KindDefinition, ...] = ()
    controllers: tuple[ControllerPart, ...] = ()
    admission: tuple[AdmissionPart, ...] = ()
    background: tuple[BackgroundPart, ...] = ()
    provides: tuple[Provides, ...] = ()
    #: Feature gates that it asks: OpenKruise's by their names, our own declared.
    gates: tuple[str | Gate, ...] = ()
    #: Flags that it reads, beside the workers flags of its controllers: OpenKruise's by their names, our own declared.
    flags: tuple[str | Flag, ...] = ()
    #: Kinds that deletion protection knows.
    protected: tuple[Protected, ...] = ()
    #: What ``pykruise rollout``, ``plan`` and ``explain`` know of its kinds; imported when a command is given.
    commands: Callable[[], tuple[Commands, ...]] = tuple
    #: What ``pykruise explain node`` says of its kinds, where they have no other commands.
    explain_node: Callable[[], tuple[ExplainNode, ...]] = tuple
    #: Commands of its own; imported when one is given.
    verbs: Callable[[], tuple[Verb, ...]] = tuple
    #: The same with options of their own.
    long_verbs: Callable[[], tuple[LongVerb, ...]] = tuple
    #: How the dashboard shows its kinds; imported when it is served.
    dashboard: Callable[[], tuple[DashboardSection[Any], ...]] = tuple
    #: Kinds by whose spec alone new Pods are judged: ``pykruise review --cluster`` takes theirs from the cluster.
    judging_pods: tuple[KindDefinition, ...] = ()
    #: Kinds whose objects own Pods: while there are any, an uninstall is refused.
    workloads: tuple[KindDefinition, ...] = ()

    @property
    def counters(self) -> Iterable[Counters[Any]]:
        """Everything that counts."""
        parts: tuple[ControllerPart | AdmissionPart | BackgroundPart | Provides, ...] = (
            *self.controllers,
            *self.admission,
            *self.background,
            *self.provides,
        )
        return dict.fromkeys(one for part in parts for one in part.counters)

    def running(self, enabled: Enabled) -> tuple[ControllerPart, ...]:
        """The controllers that run with these gates."""
        return tuple(part for part in self.controllers if is_on(part.gates, enabled))

    def judging(self, enabled: Enabled) -> tuple[AdmissionPart, ...]:
        """The parts of admission that exist with these gates."""
        return tuple(part for part in self.admission if is_on(part.gates, enabled))

    def watched_for_admission(self, enabled: Enabled) -> Iterable[Watched[Any]]:
        """What processes that answer reviews watch."""
        return (one for part in self.judging(enabled) for one in part.watched)

    def watched_for_controllers(self, enabled: Enabled) -> Iterable[Watched[Any]]:
        """What the process that writes to the cluster watches."""
        return (one for part in self._working(enabled) for one in part.watched)

    def _working(self, enabled: Enabled) -> tuple[ControllerPart | BackgroundPart | Provides, ...]:
        return (*self.running(enabled), *self.background, *self.provides)

    def permissions(self, enabled: Enabled) -> Iterable[PolicyRule]:
        """What it needs with these gates, beside what its webhooks and steps need."""
        for working in self._working(enabled):
            yield from working.permissions
        for one in (*self.watched_for_admission(enabled), *self.watched_for_controllers(enabled)):
            yield one.permission


def is_on(gates: tuple[str, ...], enabled: Enabled) -> bool:
    """Whether something with these gates exists."""
    return not gates or any(map(enabled, gates))
