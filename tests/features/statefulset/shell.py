"""The reconciler of StatefulSets on caches that the test fills by hand."""

from __future__ import annotations

from typing import Any

from app.features.statefulset import reconcile as statefulset
from app.features.statefulset.plan.settings import Gates
from app.features.statefulset.reconcile import StatefulSetReconciler
from app.features.statefulset.types import StatefulSet
from app.framework.watched import Stores
from app.kube.objects import decode_controller_revision, decode_persistent_volume_claim, decode_pod
from tests.kit import features


class Shell(features.Shell):
    namespace = "shop"

    def __init__(self, gates: Gates | None = None, **options: Any) -> None:
        super().__init__(statefulset.NAME)
        stores = Stores(statefulset.WATCHED)
        self.caches = statefulset.caches_of(stores)
        self.claims = stores(statefulset.ALL_CLAIMS)
        self.reconciler = StatefulSetReconciler(
            self.client, self.caches, self.claims, self.recorder, gates=gates, **options
        )
        self.decoders = {
            "StatefulSet": (self.caches.workloads, StatefulSet.model_validate_json),
            "Pod": (self.caches.pods, decode_pod),
            "PersistentVolumeClaim": (self.claims, decode_persistent_volume_claim),
            "ControllerRevision": (self.caches.revisions, decode_controller_revision),
        }

    async def events(self) -> list[tuple[str, str]]:
        return [(body["reason"], body["message"]) for body in await self.sent_events()]
