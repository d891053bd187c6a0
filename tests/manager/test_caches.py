"""The manager's caches: what can be found without looking at every object."""

import orjson
import pytest

from app.kube.objects import decode_controller_revision, decode_persistent_volume_claim, decode_pod
from app.manager.caches import Caches
from app.sidecars.sidecarset.reconcile import INJECTED_BY
from app.sidecars.sidecarset.record import RECORDED_SET
from app.workloads.engine.kind import OWNER

OWNED = {
    "name": "web-abcde",
    "namespace": "shop",
    "uid": "1",
    "labels": {"kruise.io/sidecarset-name": "mesh"},
    "annotations": {"kruise.io/sidecarset-injected-list": "logs,mesh"},
    "ownerReferences": [
        {
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "CloneSet",
            "name": "web",
            "uid": "web-uid",
            "controller": True,
        }
    ],
}


@pytest.mark.behaviour("MGR-61")
def test_what_belongs_to_a_workload_or_a_sidecarset_is_found_by_it() -> None:
    caches = Caches("kruise-system")
    raw = orjson.dumps({"metadata": OWNED})
    caches.pods.replace([decode_pod(raw)])
    caches.claims.replace([decode_persistent_volume_claim(raw)])
    caches.workload_revisions.replace([decode_controller_revision(raw)])
    caches.revisions.replace([decode_controller_revision(raw)])
    for store in (caches.pods, caches.claims, caches.workload_revisions):
        assert [found.metadata.name for found in store.by_index(OWNER, "web-uid")] == ["web-abcde"]
        assert not list(store.by_index(OWNER, "other"))
    assert [found.metadata.name for found in caches.pods.by_index(INJECTED_BY, "mesh")] == ["web-abcde"]
    assert [found.metadata.name for found in caches.revisions.by_index(RECORDED_SET, "mesh")] == ["web-abcde"]
