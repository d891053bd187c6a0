"""A controller as a slice declares it, and what it is given to be made from.

ControllerPart(
    name="widget-controller",
    watched=(WIDGETS, PODS),
    make=widget_controller,          # ControllerContext → Reconciling
    permissions=(...),               # beside listing and watching what is watched
    workers_flag="widget-workers",
    counters=(WidgetCounters,),
)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Protocol, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry

from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.controller import Reconcile, Watch
from app.kube.events import EventRecorder
from app.kube.selectors import Selector
from app.slices.options import Enabled
from app.slices.watched import Stores, Watched

T = TypeVar("T")

#: Makes something that counts, once per process, in the process's registry. Two slices that name the same one share it,
#: so it must have a label that tells them apart.
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
    """What other slices provide."""

    def __call__(self, protocol: type[T]) -> Sequence[T]:
        """All that slices provide of this protocol; nothing where none does."""
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
    """What a slice does for others that must not import it: an object of ``protocol``, which stands in ``app.pods``.

    Whoever needs it asks ``context.provided(protocol)``.
    """

    protocol: type[Any]
    make: Callable[[ControllerContext], Any]
    watched: tuple[Watched[Any], ...] = ()
    permissions: tuple[PolicyRule, ...] = ()
    counters: tuple[Counters[Any], ...] = ()
    #: The component that its events name; empty: the protocol's name.
    event_source: str = ""
