"""Objects written in another version than the stored one, with the manager that converts them."""

from __future__ import annotations

from dataclasses import replace

from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from tests.managed import in_managed
from tests.sandbox.cluster import Simulated

STORED = PERSISTENT_POD_STATE.resource()
OLDER = replace(STORED, version="v1alpha1")
KEYS = ["kubernetes.io/hostname"]


@in_managed
async def test_a_status_write_in_an_older_version_changes_no_other_version(there: Simulated) -> None:
    target = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "web"}
    spec = {"targetRef": target, "requiredPersistentTopology": {"nodeTopologyKeys": KEYS}}
    body = {"apiVersion": OLDER.api_version, "kind": OLDER.kind, "metadata": {"name": "web"}, "spec": spec}
    await there.client.create(OLDER, body, "default")
    status = {"observedGeneration": 1, "podStates": {"web-0": {"nodeName": "node"}}}
    await there.client.patch(OLDER, "web", {"status": status}, "default", subresource="status")
    stored = await there.client.get(STORED, "web", "default")
    assert stored["spec"]["requiredPersistentTopology"] == {"keys": KEYS}
    assert stored["status"]["podStates"] == {"web-0": {"nodeName": "node"}}
    older = await there.client.get(OLDER, "web", "default")
    assert (older["spec"], older["metadata"].get("annotations")) == (spec, None)
