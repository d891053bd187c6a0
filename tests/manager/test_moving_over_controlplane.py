"""The manager takes over OpenKruise's objects on a real API server: it writes no Pod and refuses no write of a Pod."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.manager.webhook_handlers import WEBHOOKS
from tests import openkruise
from tests.cluster.controlplane import ControlPlane, wait_for_service_account
from tests.scenarios.world import eventually, manager

pytestmark = pytest.mark.controlplane

NAMESPACE = "moving"
#: The namespace of recorded manifests.
SAMPLES = "diff"
WORKLOADS = ("cloneset", "statefulset", "daemonset", "broadcastjob", "advancedcronjob", "uniteddeployment")
SAMPLED = (*WORKLOADS, "sidecarset")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: Only the manager writes: there is no kubelet and no controller except those that every namespace needs.
_CONTROLLERS = ["--controllers=serviceaccount,serviceaccount-token,namespace"]
_LAST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@pytest.fixture(scope="module")
def left() -> Iterator[ControlPlane]:
    """Create what OpenKruise installed, but for its webhooks, and the recorded objects."""
    with ControlPlane(controller_manager_args=_CONTROLLERS) as started:
        started.kubectl("create", "namespace", "kruise-system")
        started.kubectl("label", "namespace", "kruise-system", "control-plane=openkruise")
        started.kubectl("create", "namespace", NAMESPACE)
        for name in ("kruise-system", NAMESPACE):
            wait_for_service_account(started.kubectl, name)
        installed = openkruise.installed()
        create(started, *(item for item in installed if item["kind"] not in (*_LAST, "ServiceAccount")))
        lay(started, openkruise.recorded())
        started.kubectl("create", "namespace", SAMPLES)
        create(started, *(stored for _, stored in samples()))
        yield started


def register_openkruise(control_plane: ControlPlane) -> None:
    """Register OpenKruise's webhooks alone, as after its manager has stopped."""
    control_plane.kubectl("delete", ",".join(_LAST), "--all")
    create(control_plane, *(item for item in openkruise.installed() if item["kind"] in _LAST))


def samples() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return manifests of every workload and of SidecarSets, with the objects that OpenKruise stored."""
    found = []
    for kind in SAMPLED:
        for number, one in enumerate(json.loads((openkruise.FOLDER / f"samples-{kind}.json").read_text("utf-8"))):
            stored = one.get("v1beta1") or one.get("created")
            # These need a list of allowed keys that was not recorded.
            if one["ok"] and stored and "patchPodMetadata" not in stored["spec"]:
                # The recording lacks the phase of claims.
                for claim in stored["spec"].get("volumeClaimTemplates") or ():
                    claim["status"] = {"phase": "Pending"}
                name = {"name": f"{kind}-{number}"}
                both = [{**item, "metadata": {**item["metadata"], **name}} for item in (one["manifest"], stored)]
                if kind == "sidecarset":  # each was recorded alone; sets over the same Pods conflict
                    for item in both:
                        item["spec"]["selector"].setdefault("matchLabels", {})["sample"] = str(number)
                found.append((both[0], both[1]))
    return found


def applied() -> list[dict[str, Any]]:
    """Return manifests of recorded objects that have Pods, as kubectl's annotation holds them."""
    remembered = (item["metadata"].get("annotations", {}).get(_LAST_APPLIED) for item in openkruise.recorded())
    return [json.loads(text) for text in remembered if text]


def create(control_plane: ControlPlane, *items: dict[str, Any]) -> None:
    bare = json.dumps({"apiVersion": "v1", "kind": "List", "items": [openkruise.bare(item) for item in items]})
    # As its Helm chart does: another field manager owns the fields.
    control_plane.kubectl("create", "--field-manager=helm", "-f", "-", stdin=bare)


def lay(control_plane: ControlPlane, items: list[dict[str, Any]]) -> None:
    """Create objects with their status, owners first, because uids are new."""
    uids: dict[str, str] = {}
    converted = needing_conversion()
    plurals = resources(control_plane)
    waiting = {item["metadata"]["uid"]: item for item in items}
    while waiting:
        now = [item for item in waiting.values() if not any(one["uid"] in waiting for one in owners(item))]
        assert now, "two objects own each other"
        for item in now:
            del waiting[item["metadata"]["uid"]]
            made = openkruise.bare(item)
            if kept := [{**one, "uid": uids[one["uid"]]} for one in owners(item) if one["uid"] in uids]:
                made["metadata"]["ownerReferences"] = kept
            elif owners(item):
                continue  # of an object that is not created here
            if (item["apiVersion"], item["kind"]) in converted or item["kind"] == "Job":
                continue  # a Job's labels contain its uid
            path = path_of(item, plurals)
            code, answer = control_plane.request("POST", path, made)
            assert code in (201, 409), (item["kind"], answer)
            if code == 409:
                continue
            uids[item["metadata"]["uid"]] = answer["metadata"]["uid"]
            if item.get("status"):
                status = {**answer, "status": item["status"]}
                code, _ = control_plane.request("PUT", f"{path}/{item['metadata']['name']}/status", status)
                assert code in (200, 404)


def owners(item: dict[str, Any]) -> list[dict[str, Any]]:
    return list(item["metadata"].get("ownerReferences") or [])


def resources(control_plane: ControlPlane) -> dict[tuple[str, str], str]:
    """Return the plural by API version and kind."""
    found = {}
    for version in ("/api/v1", "/apis/apps/v1", "/apis/batch/v1"):
        for one in control_plane.request("GET", version)[1]["resources"]:
            if "/" not in one["name"]:
                found[version.removeprefix("/apis/").removeprefix("/api/"), one["kind"]] = one["name"]
    for item in openkruise.installed():
        if item["kind"] == "CustomResourceDefinition":
            spec = item["spec"]
            for version in spec["versions"]:
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = spec["names"]["plural"]
    return found


def needing_conversion() -> set[tuple[str, str]]:
    """Return the versions in which no object can be created without a manager that converts."""
    return {
        (f"{item['spec']['group']}/{version['name']}", item["spec"]["names"]["kind"])
        for item in openkruise.installed()
        if (item.get("spec", {}).get("conversion") or {}).get("strategy") == "Webhook"
        for version in item["spec"]["versions"]
        if not version["storage"]
    }


def path_of(item: dict[str, Any], plurals: dict[tuple[str, str], str]) -> str:
    version = item["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = item["metadata"].get("namespace")
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{where}/{plurals[version, item['kind']]}"


def pods(control_plane: ControlPlane) -> dict[str, tuple[str, str]]:
    """Remove fields that change with every write of a Pod."""
    items = json.loads(control_plane.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json").stdout)["items"]
    # A probe of the recorded marker and a WorkloadSpread both set the deletion cost of these Pods, and took turns while
    # they were recorded: only that annotation is written.
    priced = [
        one["metadata"]
        for one in items
        if "controller.kubernetes.io/pod-deletion-cost" in one["metadata"].get("annotations", {})
    ]
    for metadata in priced:
        metadata["resourceVersion"] = ""
    return {one["metadata"]["name"]: (one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in items}


@pytest.mark.behaviour("MGR-140", "MGR-141", "MGR-142")
def test_no_pod_is_touched_and_none_is_refused(left: ControlPlane, tmp_path: Path) -> None:
    register_openkruise(left)
    before = pods(left)
    assert len(before) > 20
    refused = left.kubectl("annotate", "pod", "-n", NAMESPACE, min(before), "x=y", "--dry-run=server", check=False)
    assert "failed calling webhook" in refused.stderr  # no process answers
    with manager(left, tmp_path) as addresses:
        log = Path(addresses["log"])
        # At once, while entries of OpenKruise that no process serves are still registered.
        for name in before:
            left.kubectl("annotate", "pod", "-n", NAMESPACE, name, "x=y", "--dry-run=server")
            left.kubectl("delete", "pod", "-n", NAMESPACE, name, "--dry-run=server")
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": NAMESPACE},
            }
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction?dryRun=All"
            code, answer = left.request("POST", path, eviction)
            assert code == 201, answer
        for version in ("v1alpha1", "v1beta1"):
            left.kubectl("get", f"clonesets.{version}.apps.kruise.io", "-A")

        served = {webhook.name for webhook in WEBHOOKS}

        def only_ours() -> bool:
            kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
            items = json.loads(left.kubectl("get", kinds, "-o", "json").stdout)["items"]
            return {entry["name"] for item in items for entry in item["webhooks"]} <= served

        eventually(only_ours, "what is not served here is not registered", 120)
        assert pods(left) == before
        assert "Traceback" not in log.read_text()


@pytest.mark.behaviour("MGR-142", "CS-19")
def test_manifests_applied_again_create_no_revision_and_no_pod(left: ControlPlane, tmp_path: Path) -> None:
    """Apply manifests as OpenKruise got them, without its defaults. No workload gets a new generation."""
    register_openkruise(left)
    manifests = [*(manifest for manifest, _ in samples()), *applied()]
    assert len(manifests) > 400
    assert {one["kind"] for one in applied()} >= {"CloneSet", "SidecarSet"}
    # v1alpha1 does not show an empty block of in-place settings, so writing it is a change.
    given = {
        f"{one['kind']} {one['metadata']['name']}"
        for one in manifests
        if (one["kind"], one["apiVersion"]) != ("CloneSet", "apps.kruise.io/v1alpha1")
    }
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})

    def names(kind: str) -> set[str]:
        return set(left.kubectl("get", kind, "-A", "-o", "name").stdout.split())

    def listed(*kinds: str) -> list[dict[str, Any]]:
        found = left.kubectl("get", ",".join(f"{kind}.apps.kruise.io" for kind in kinds), "-A", "-o", "json").stdout
        return list(json.loads(found)["items"])

    def observed() -> bool:
        items = listed("clonesets", "statefulsets", "daemonsets", "sidecarsets")
        assert len(items) > 200
        return all(one.get("status", {}).get("observedGeneration") == one["metadata"]["generation"] for one in items)

    def generations() -> dict[str, int]:
        # Without those of UnitedDeployments: tests/features/test_recorded.py.
        items = listed(*(kind for kind in WORKLOADS if kind != "uniteddeployment"))
        found = {f"{one['kind']} {one['metadata']['name']}": one["metadata"]["generation"] for one in items}
        return {name: number for name, number in found.items() if name in given}

    def state() -> set[object]:
        # Revisions and Pods of UnitedDeployments and their subsets' workloads may follow later.
        found = {name for kind in ("controllerrevisions", "pods") for name in names(kind)}
        return {name for name in found if "/uniteddeployment-" not in name} | set(pods(left).items())

    with manager(left, tmp_path):
        eventually(observed, "the manager has seen every workload", 120)
        before, numbers = state(), generations()
        # The samples have fields that neither manager knows.
        done = left.kubectl("apply", "--validate=false", "-f", "-", stdin=text, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        # Some jobs have ended and are deleted.
        assert done.stdout.count(" configured") > 390
        eventually(observed, "the manager has seen every workload again", 120)
        assert state() ^ before == set()
        # Jobs that had ended are new.
        assert {name for name, number in generations().items() if numbers.get(name, number) != number} == set()
