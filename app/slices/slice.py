"""A slice: everything that others have to know about one kind, or a few that belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.api.kind import KindDefinition
from app.kube.admission import PolicyRule
from app.slices.admission import AdmissionPart
from app.slices.commands import Commands, ExplainNode, Verb
from app.slices.controllers import BackgroundPart, ControllerPart, Counters, Provides
from app.slices.options import Enabled, Flag, Gate
from app.slices.protected import Protected
from app.slices.verbs import LongVerb
from app.slices.watched import Watched

if TYPE_CHECKING:
    from app.slices.dashboard import DashboardSection


@dataclass(frozen=True, slots=True)
class Slice:
    """The declaration of a slice; ``SLICE`` in the ``slice.py`` of its folder."""

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
