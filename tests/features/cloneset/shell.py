"""The reconciler of CloneSets on caches that the test fills by hand."""

from __future__ import annotations

from random import Random
from typing import Any

from app.features.cloneset import reconcile as cloneset
from app.features.cloneset.plan.settings import Gates
from app.features.cloneset.reconcile import CloneSetReconciler
from app.features.cloneset.types import CloneSet
from app.framework.watched import Stores
from app.kube.objects import decode_controller_revision, decode_persistent_volume_claim, decode_pod
from tests.kit import features

#: Kinds in its caches.
KINDS = frozenset(("CloneSet", "Pod", "PersistentVolumeClaim", "ControllerRevision"))


class Shell(features.Shell):
    reconciler: CloneSetReconciler

    def __init__(self, gates: Gates | None = None, **options: Any) -> None:
        super().__init__(cloneset.NAME)
        self.caches = cloneset.caches_of(Stores(cloneset.WATCHED))
        self.reconciler = CloneSetReconciler(self.client, self.caches, self.recorder, Random(1), gates=gates, **options)
        assert self.caches.claims is not None
        self.decoders = {
            "CloneSet": (self.caches.workloads, CloneSet.model_validate_json),
            "Pod": (self.caches.pods, decode_pod),
            "PersistentVolumeClaim": (self.caches.claims, decode_persistent_volume_claim),
            "ControllerRevision": (self.caches.revisions, decode_controller_revision),
        }

    async def events(self, reason: str) -> list[dict[str, Any]]:
        return [body for body in await self.sent_events() if body["reason"] == reason]
