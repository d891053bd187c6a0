"""CustomResourceDefinitions on a real API server: new installations, and updates of OpenKruise's and our own ones, in
every documented way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.admission.configurations import Endpoint, ServiceEndpoint, UrlEndpoint, conversion_patch, release_patch
from app.api.crd import manifests
from app.manager.features import kinds
from tests import openkruise
from tests.cluster.controlplane import ControlPlane
from tests.cluster.definitions import delete_definitions
from tests.deploy.release import Release
from tests.deploy.rendering import CHART
from tests.scenarios.world import eventually, manager

pytestmark = [pytest.mark.controlplane, pytest.mark.alone]

DECLARED = manifests(kinds())
CRDS = str(CHART.parent / "crds")
SERVICE = ServiceEndpoint("kruise-webhook-service", "kruise-system")
URL = UrlEndpoint("127.0.0.1", 9876)
_PATCH = ("--type=merge", "--field-manager=kruise-manager")
#: A CA that API servers accept.
BUNDLE = next(
    item["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
    for item in openkruise.installed()
    if item["spec"].get("conversion", {}).get("webhook")
)


@pytest.fixture
def fresh(empty: ControlPlane) -> ControlPlane:
    """Return a control plane without our CRDs or OpenKruise's."""
    release = Release(empty.kubectl, empty.kubeconfig)
    release.helm("uninstall", "kruise", "--no-hooks", "--wait", check=False)
    names = {item["metadata"]["name"] for item in openkruise.installed()} & set(found(empty)) | set(DECLARED)
    delete_definitions(empty, names)
    return empty


def found(control_plane: ControlPlane) -> dict[str, dict[str, Any]]:
    items = json.loads(control_plane.kubectl("get", "crd", "--show-managed-fields", "-o", "json").stdout)["items"]
    return {item["metadata"]["name"]: item for item in items}


def looked_after(control_plane: ControlPlane, endpoint: Endpoint) -> None:
    """Patch CRDs as a manager at this endpoint does, until nothing is left to patch."""

    def patched() -> bool:
        """Return whether nothing was left to patch. Conflicts with the API server's status writes are retried."""
        left = [
            control_plane.kubectl("patch", "crd", name, *_PATCH, "-p", json.dumps(patch), check=False)
            for name, live in found(control_plane).items()
            if name in DECLARED
            and (patch := conversion_patch(live, endpoint, BUNDLE) or release_patch(live)) is not None
        ]
        assert not [one.stderr for one in left if one.returncode and "the object has been modified" not in one.stderr]
        return not left

    eventually(patched, "definitions convert through the manager")
    for name, live in found(control_plane).items():
        if name in DECLARED and len(live["spec"]["versions"]) > 1:
            wanted = endpoint.client_config("/convert", BUNDLE)
            assert live["spec"]["conversion"]["webhook"]["clientConfig"] == wanted


def openkruises(control_plane: ControlPlane) -> None:
    for item in openkruise.installed():
        if item["kind"] == "CustomResourceDefinition":
            item["metadata"] = {key: item["metadata"][key] for key in ("name", "annotations")}
            item.pop("status", None)
            control_plane.kubectl("create", "--field-manager=helm", "-f", "-", stdin=json.dumps(item))


def ours_by_service(control_plane: ControlPlane) -> None:
    server_side(control_plane)
    looked_after(control_plane, SERVICE)


def ours_by_url(control_plane: ControlPlane) -> None:
    server_side(control_plane)
    looked_after(control_plane, URL)


def client_side(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", CRDS)


def server_side(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", CRDS)


def plainly(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "--server-side", "-f", CRDS)


def by_helm(control_plane: ControlPlane) -> None:
    release = Release(control_plane.kubectl, control_plane.kubeconfig)
    release.helm("upgrade", "--install", "kruise", str(CHART), "--take-ownership")


@pytest.mark.behaviour("MGR-142")
@pytest.mark.parametrize("install", [client_side, server_side, by_helm])
@pytest.mark.parametrize(
    ("before", "endpoint"), [(openkruises, SERVICE), (ours_by_service, SERVICE), (ours_by_url, URL)]
)
def test_definitions_can_be_installed_over_existing_ones_repeatedly(
    fresh: ControlPlane, before: Any, install: Any, endpoint: Endpoint
) -> None:
    before(fresh)
    for _ in range(2):
        install(fresh)
        looked_after(fresh, endpoint)
    live = found(fresh)
    for name, declared in DECLARED.items():
        conditions = {one["type"]: one["status"] for one in live[name]["status"]["conditions"]}
        assert conditions["Established"] == "True"
        for wanted, version in zip(declared["spec"]["versions"], live[name]["spec"]["versions"], strict=True):
            assert version["schema"]["openAPIV3Schema"].get("description") == wanted["schema"]["openAPIV3Schema"].get(
                "description"
            )


@pytest.mark.behaviour("MGR-142")
@pytest.mark.parametrize("before", [ours_by_service, ours_by_url, client_side, by_helm])
def test_an_update_of_our_own_definitions_forces_no_conflict(
    fresh: ControlPlane, before: Callable[[ControlPlane], None]
) -> None:
    endpoint = SERVICE if before is ours_by_service else URL
    before(fresh)
    looked_after(fresh, endpoint)
    for _ in range(2):
        plainly(fresh)
        looked_after(fresh, endpoint)


@pytest.mark.behaviour("MGR-142")
def test_upgrading_openkruise_definitions_needs_forced_ownership(fresh: ControlPlane) -> None:
    openkruises(fresh)
    refused = fresh.kubectl("apply", "--server-side", "-f", CRDS, check=False)
    assert 'conflict with "helm"' in refused.stderr
    assert "--force-conflicts" in refused.stderr  # the name that the guides mention
    server_side(fresh)
    plainly(fresh)


@pytest.mark.behaviour("MGR-142")
def test_a_manager_reached_by_url_conflicts_with_no_installer(fresh: ControlPlane, tmp_path: Path) -> None:
    fresh.kubectl("create", "namespace", "kruise-system", check=False)
    converting = {name for name, declared in DECLARED.items() if "conversion" in declared["spec"]}

    def by_url() -> bool:
        """Return whether all conversions use the URL again, and the manager has released its fields."""
        live = found(fresh)
        configs = [live[name]["spec"]["conversion"]["webhook"]["clientConfig"] for name in converting]
        return all("url" in one for one in configs) and not any(release_patch(live[name]) for name in converting)

    with manager(fresh, tmp_path):
        eventually(by_url, "the manager has written its URL")
        for install in (plainly, plainly, client_side, plainly):
            install(fresh)
            eventually(by_url, "the manager has written its URL again")
