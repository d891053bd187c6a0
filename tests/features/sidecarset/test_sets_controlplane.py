"""SidecarSets on a real API server with our manager: recorded ones, other versions, and their revisions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.api import names
from tests.cluster.controlplane import ControlPlane
from tests.features.recorded_sets import NEVER_STORED, SETS, judged, read_alike
from tests.features.writing import sidecar_set
from tests.scenarios.world import SYSTEM_NAMESPACE, eventually, manager

pytestmark = pytest.mark.controlplane

GROUP = "/apis/apps.kruise.io"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with our manager, its gates as where the answers were recorded."""
    gates = "--feature-gates=SidecarSetPatchPodMetadataDefaultsAllowed=true"
    with ControlPlane() as control_plane, manager(control_plane, tmp_path_factory.mktemp("manager"), gates):
        yield control_plane


@pytest.mark.behaviour("SS-1", "SS-2", "SS-3", "SS-21", "SS-108", "MGR-50")
@pytest.mark.parametrize("case", SETS, ids=[case["manifest"]["metadata"]["name"] for case in SETS])
def test_a_recorded_set_is_validated_and_stored_alike_on_an_api_server(api: ControlPlane, case: dict[str, Any]) -> None:
    manifest = case["manifest"]
    name, version = manifest["metadata"]["name"], manifest["apiVersion"].rpartition("/")[2]

    def path(version: str) -> str:
        return f"{GROUP}/{version}/sidecarsets"

    code, answer = api.request("POST", path(version), manifest)
    judged(name, "create", "" if code == 201 else answer["message"], case["ok"], case["message"])
    if not case["ok"] or name in NEVER_STORED:
        return
    try:
        read_alike(name, "created", answer, case["created"])
        for read in ("v1alpha1", "v1beta1"):
            read_alike(name, read, api.request("GET", f"{path(read)}/{name}")[1], case[read])
        update = case["update"]
        code = 409
        while code == 409:
            # The controller may write the status of the new set in between.
            before = api.request("GET", f"{path(version)}/{name}")[1]
            code, answer = api.request("PUT", f"{path(version)}/{name}", {**before, "spec": update["manifest"]})
        judged(name, "update", "" if code == 200 else answer["message"], update["ok"], update["message"])
        if code == 200:
            read_alike(name, "updated", answer, update["result"])
    finally:
        # The next case must not conflict with this set, which the webhook's cache has for a moment longer.
        spec = api.request("GET", f"{path(version)}/{name}")[1]["spec"]
        api.request("DELETE", f"{path('v1beta1')}/{name}")
        another = {**manifest, "metadata": {"name": f"{name}-again"}, "spec": spec}

        def is_forgotten() -> bool:
            message = api.request("POST", f"{path(version)}?dryRun=All", another)[1].get("message", "")
            return not re.search(rf" {name}(?![\w-])", message)

        eventually(is_forgotten, f"the webhook forgets SidecarSet {name}")


def applied(api: ControlPlane, obj: dict[str, Any], *flags: str) -> dict[str, Any]:
    api.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(obj))
    return stored(api, obj["metadata"]["name"])


def stored(api: ControlPlane, name: str, version: str = "v1beta1") -> dict[str, Any]:
    return dict(api.request("GET", f"{GROUP}/{version}/sidecarsets/{name}")[1])


@pytest.mark.behaviour("SS-1", "SS-2", "SS-4")
@pytest.mark.parametrize("flags", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_applying_a_v1alpha1_manifest_without_namespace_widens_the_scope(
    api: ControlPlane, flags: tuple[str, ...]
) -> None:
    alpha = "apps.kruise.io/v1alpha1"
    labels = {"labels": {"apps.kruise.io/sidecarset-custom-version": "v1"}}
    manifest = sidecar_set("scoped", version=alpha, metadata=labels, namespace="shop")
    try:
        first = applied(api, manifest, *flags)
        assert first["spec"]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}
        assert first["spec"]["customVersion"] == "v1"
        shown = stored(api, "scoped", "v1alpha1")
        assert shown["spec"]["namespace"] == "shop"
        assert "namespaceSelector" not in shown["spec"]
        # Applying the same manifest again changes nothing.
        assert applied(api, manifest, *flags)["metadata"]["generation"] == first["metadata"]["generation"]
        widened = applied(api, sidecar_set("scoped", version=alpha, metadata=labels), *flags)
        assert "namespaceSelector" not in widened["spec"]
        assert widened["spec"]["customVersion"] == "v1"
        # Then a write in the newer version.
        beta = applied(api, sidecar_set("scoped", customVersion="v2", namespaceSelector={"matchLabels": {"a": "b"}}))
        assert beta["spec"]["namespaceSelector"] == {"matchLabels": {"a": "b"}}
        assert stored(api, "scoped", "v1alpha1")["spec"]["namespaceSelector"] == {"matchLabels": {"a": "b"}}
    finally:
        api.request("DELETE", f"{GROUP}/v1beta1/sidecarsets/scoped")


def latest_revision(api: ControlPlane, name: str) -> str:
    return str(eventually(lambda: stored(api, name)["status"]["latestRevision"], f"SidecarSet {name} has a revision"))


def owners(api: ControlPlane, name: str) -> dict[str, list[str]]:
    """Return the UIDs of the owners of each revision of a set."""
    query = f"labelSelector={names.SIDECARSET_NAME}%3D{name}"
    found = api.request("GET", f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/controllerrevisions?{query}")[1]["items"]
    return {
        one["metadata"]["name"]: [owner["uid"] for owner in one["metadata"].get("ownerReferences", ())] for one in found
    }


@pytest.mark.behaviour("SS-121", "SS-104")
def test_a_recreated_set_adopts_its_revision_before_it_is_collected(api: ControlPlane) -> None:
    again = sidecar_set("again", containers=[{"name": "first", "image": "a:1"}])
    gone = sidecar_set("gone", containers=[{"name": "second", "image": "a:1"}])
    try:
        applied(api, again)
        revision = latest_revision(api, "again")
        api.request("DELETE", f"{GROUP}/v1beta1/sidecarsets/again")
        wanted = {revision: [applied(api, again)["metadata"]["uid"]]}
        eventually(lambda: owners(api, "again") == wanted, "the new set owns the revision")
        # After a restart, the garbage collector watches SidecarSets. Once it has deleted a revision whose owner is
        # gone, it has also checked the adopted one.
        api.restart_controller_manager()
        applied(api, gone)
        latest_revision(api, "gone")
        api.request("DELETE", f"{GROUP}/v1beta1/sidecarsets/gone")
        eventually(lambda: not owners(api, "gone"), "the revision is collected", 90)
        assert owners(api, "again") == wanted
    finally:
        for name in ("again", "gone"):
            api.request("DELETE", f"{GROUP}/v1beta1/sidecarsets/{name}")
