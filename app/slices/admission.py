"""Admission as a slice declares it: webhooks, their handlers, steps of Pod creation, and what these are made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from app.kube.admission import Handler, PolicyRule, Webhook
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.events import EventRecorder
from app.pods.guards import Guarded, PodGuard
from app.pods.steps import PodStep
from app.slices.controllers import Counters, Counting, Flags
from app.slices.options import Enabled
from app.slices.watched import Stores, Watched


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
    steps: Sequence[PodStep] = ()
    guards: Sequence[PodGuard] = ()


@dataclass(frozen=True, slots=True)
class AdmissionPart:
    """What a slice does in admission. Several webhooks may have one name: they become one entry.

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
