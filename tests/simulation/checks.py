"""Checks after every write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from app.kube.resources import CONTROLLERREVISIONS, PODS, Resource
from app.sandbox.apiserver.server import ApiServer
from tests.simulation import invariants, passes
from tests.simulation.history import History
from tests.simulation.hooks import Hooks
from tests.simulation.rest import Rest
from tests.simulation.trust import Trust
from tests.simulation.users import Users
from tests.simulation.volumes import Volumes
from tests.simulation.workloads.judge import Judge, Write

Json = dict[str, Any]


class Checks:
    """Records violations in the history, and forwards writes to hooks, volumes and the detection of rest."""

    def __init__(
        self, api: ApiServer, history: History, rest: Rest, users: Users, judge: Judge, hooks: Hooks, volumes: Volumes
    ) -> None:
        self._api = api
        self._history = history
        self._clock = users.clock
        self._rest = rest
        self._users = users
        self._judge = judge
        self._hooks = hooks
        self._volumes = volumes
        self._trust = Trust()
        #: Writes by kind and name, without those that never stop (Leases, Nodes, Events).
        self.writes: Counter[str] = Counter()
        self.most_pods = 0

    @property
    def calm(self) -> bool:
        """Return whether no fault is active. Only then is a write that changes nothing a violation."""
        return self._judge.calm

    @calm.setter
    def calm(self, calm: bool) -> None:
        self._judge.calm = calm

    def check_trust(self) -> None:
        """Check that every CA bundle that an API server may hold trusts the served certificates."""
        if self._users.sabotaged:
            return
        boards = {
            replica.name: replica.shared.certificate.read() for replica in self._users.replicas if replica.answers
        }
        served = {name: board.cert for name, board in boards.items() if board is not None}
        at = self._clock.monotonic()
        for sentence in self._trust.broken_by(at, served, self._users.given_authority):
            self._history.breaks(at, sentence)

    def wrote(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        at = self._clock.monotonic()
        obj = after if after is not None else before
        if obj is None:
            return
        kind = resource.kind
        if kind == "Lease" and before is not None and after is not None and _holder(before) == _holder(after):
            return
        if kind not in ("Lease", "Node", "Event"):
            self.writes[f"{kind} {obj['metadata'].get('name')}"] += 1
        self._rest.wrote(kind)
        self._history.note(at, verb, resource, obj)
        for sentence in self._breaches(kind, before, after):
            self._history.breaks(at, sentence)
        for sentence in self._judge.wrote(Write(at, kind, before, after, passes.current())):
            self._history.breaks(at, sentence)
        if (leaders := self._rest.leaders()) > 1:
            self._history.breaks(at, f"{leaders} replicas lead")
        if kind.endswith("WebhookConfiguration"):
            self._trust.wrote(at, before, after)
            self.check_trust()

    def _breaches(self, kind: str, before: Json | None, after: Json | None) -> Iterable[str]:
        if kind == "Pod":
            self._volumes.saw_pod(before, after)
            if before is None:
                self.most_pods = max(self.most_pods, len(self._api.objects(PODS)))
            if after is not None:
                self._hooks.saw(before, after)
                return invariants.started_in_order(before, after)
        elif kind == "PersistentVolumeClaim":
            self._volumes.saw_claim(before, after)
        elif kind == "ControllerRevision" and before is None and after is not None:
            return invariants.no_twin(after, list(self._rest.stored(CONTROLLERREVISIONS).values()))
        return ()


def _holder(lease: Json) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity"))
