"""The StatefulSet reconciler on hand-filled caches: claims, events, conditions and triggers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.features.statefulset.defaults import ClaimGates, with_defaults
from app.features.statefulset.plan.settings import Gates
from app.kube.clock import rfc3339
from app.kube.controller import Result
from app.kube.errors import AlreadyExists, Forbidden, KubeError
from app.kube.objects import decode_persistent_volume_claim, decode_pod
from app.kube.resources import ObjectKey
from app.kube.store import Change
from app.pods.template_check import default_templates
from tests.features.statefulset.shell import Shell
from tests.features.statefulset.writing import claim, rolling, stateful_set
from tests.kit import objects
from tests.kube.fakes import virtual

Json = dict[str, Any]
UID = "set-uid"
OWNER = objects.reference("apps.kruise.io/v1beta1", "StatefulSet", "web", UID)
KEY = ObjectKey("shop", "web")


def a_set(**spec: Any) -> Json:
    stored = with_defaults(stateful_set(**spec), ClaimGates(auto_resize=True))
    default_templates(stored["spec"])
    return {**stored, "metadata": {**stored["metadata"], "uid": UID, "resourceVersion": "5", "generation": 1}}


def a_pod(ordinal: int, *, labels: Json | None = None, ready: bool = True, phase: str = "Running", **meta: Any) -> Json:
    name = f"web-{ordinal}"
    given = {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        "lifecycle.apps.kruise.io/state": "Normal",
        **(labels or {}),
    }
    metadata = {"uid": f"pod-{ordinal}", "resourceVersion": "7", "labels": given, "ownerReferences": [OWNER], **meta}
    return objects.pod_json(ready=ready, phase=phase, **{"name": name, **metadata})


def a_claim(ordinal: int, *, storage: str = "1Gi", capacity: str = "1Gi", **given: Any) -> Json:
    conditions = [{"type": one, "status": "True"} for one in given.pop("conditions", ())]
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": f"data-web-{ordinal}", "namespace": "shop", "uid": f"c-{ordinal}", "resourceVersion": "3", **given
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
        "status": {"phase": "Bound", "capacity": {"storage": capacity}, "conditions": conditions},
    }  # fmt: skip


def a_revision(number: int, *, app: str = "web") -> Json:
    metadata = {"name": f"web-r{number}", "namespace": "shop", "uid": f"r{number}", "resourceVersion": "1"}
    metadata["labels"] = {"app": app, "controller.kubernetes.io/hash": f"r{number}"}
    data = {"spec": {"template": {"n": number}}}
    return {"kind": "ControllerRevision", "metadata": metadata, "revision": number, "data": data}


def shown(*objects: Json, live: str = "", **options: Any) -> Shell:
    """``live``: the uid of the set on the API server."""
    shell = Shell(**options)
    shell.show(*objects)
    if live:
        found = {"metadata": {"name": "web", "uid": live, "resourceVersion": "1"}}
        shell.server.stored["/apis/apps.kruise.io/v1beta1/namespaces/shop/statefulsets/web"] = found
    return shell


def status_of(shell: Shell) -> Json:
    """Return the status that was written."""
    (body,) = shell.bodies("PATCH", "/status")
    return dict(body["status"])


def condition_of(shell: Shell) -> tuple[str, str]:
    """Return type and message of the condition that was written."""
    (condition,) = status_of(shell)["conditions"]
    return condition["type"], condition["message"]


async def failures(shell: Shell) -> list[str]:
    return [message for reason, message in await shell.events() if reason == "FailedCreate"]


def decoded(claim: Json) -> Any:
    return decode_persistent_volume_claim(orjson.dumps(claim))


async def settled(shell: Shell) -> str:
    """Reconcile, forget the requests, and return the name of the update revision."""
    await shell.reconcile()
    (made,) = shell.bodies("POST", "/controllerrevisions")
    shell.server.requests.clear()
    return str(made["metadata"]["name"])


@pytest.mark.behaviour("AS-65", "AS-66", "AS-68", "PM-68")
@virtual
async def test_a_pod_is_created_after_its_claims() -> None:
    hooks = {"preNormal": {"labelsHandler": {"checked": "yes"}}}
    policy = {"whenDeleted": "Delete"}
    template = {**claim(), "metadata": {"name": "data", "labels": {"app": "theirs", "tier": "db"}}}
    found = a_set(
        replicas=1, volumeClaimTemplates=[template], lifecycle=hooks, persistentVolumeClaimRetentionPolicy=policy
    )
    shell = shown(found)
    await shell.reconcile()
    assert shell.names("POST")[:3] == ["controllerrevisions", "persistentvolumeclaims", "pods"]
    (made,) = shell.bodies("POST", "/persistentvolumeclaims")
    assert made["metadata"]["labels"] == {"app": "web", "tier": "db"}
    assert made["metadata"]["ownerReferences"] == [{key: OWNER[key] for key in ("apiVersion", "kind", "name", "uid")}]
    (pod,) = shell.bodies("POST", "/pods")
    assert pod["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] == "PreparingNormal"
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]
    assert await shell.events() == [
        ("SuccessfulCreate", "create Claim data-web-0 Pod web-0 in StatefulSet web success"),
        ("SuccessfulCreate", "create Pod web-0 in StatefulSet web successful"),
    ]


@pytest.mark.behaviour("PM-74")
@virtual
async def test_a_pod_is_normal_without_a_node_once_its_hook_is_removed() -> None:
    preparing = {"lifecycle.apps.kruise.io/state": "PreparingNormal"}
    shell = shown(a_set(replicas=1), a_pod(0, labels=preparing, ready=False, phase="Pending"))
    await shell.reconcile()
    (written,) = shell.bodies("PATCH", "/pods/web-0")
    assert written["metadata"]["labels"] == {"lifecycle.apps.kruise.io/state": "Normal"}


@pytest.mark.behaviour("AS-34", "AS-67", "AS-121", "AS-146")
@virtual
async def test_a_terminating_claim_is_awaited_and_its_deletion_wakes_the_set() -> None:
    going = a_claim(0, deletionTimestamp="2026-01-01T00:00:00Z")
    shell = shown(a_set(replicas=1, volumeClaimTemplates=[claim()]), going)
    await shell.reconcile()
    assert not shell.bodies("POST", "/pods")
    assert condition_of(shell) == (
        "FailedCreatePod", "StatefulPodControl failed to create Pod error: pvc data-web-0 is to be deleted"
    )  # fmt: skip
    text = "create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is to be deleted"
    assert ("FailedCreate", text) in await shell.events()
    other, grown = decoded(a_claim(1)), decoded(a_claim(1, annotations={"apps.kruise.io/owned-by-asts": "web"}))
    changes = (Change(decoded(going), None), Change(None, other), Change(other, grown))
    assert [list(shell.reconciler.keys_for_claim(change)) for change in changes] == [[KEY], [], [KEY]]


@pytest.mark.behaviour("AS-146")
@virtual
async def test_each_wait_for_a_claim_is_reported_once() -> None:
    going = a_claim(0, deletionTimestamp="2026-01-01T00:00:00Z")
    shell = shown(a_set(replicas=1, volumeClaimTemplates=[claim()]), going)
    for _ in range(2):
        await shell.reconcile()
    shell.claims.remove(ObjectKey("shop", "data-web-0"))
    await shell.reconcile()
    assert shell.bodies("POST", "/pods")
    # The Pod and its claim are deleted before the cache shows the Pod.
    shell.reconciler.writer.expectations.forget(UID)
    shell.show(going)
    await shell.reconcile()
    text = "create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is to be deleted"
    assert await failures(shell) == [text]
    assert [body["count"] for body in shell.bodies("PATCH", "/events/")] == [2]


@pytest.mark.behaviour("AS-67", "AS-146")
@virtual
async def test_a_claim_beyond_the_first_five_is_reported_once_it_is_among_them() -> None:
    going = [a_claim(number, deletionTimestamp="2026-01-01T00:00:00Z") for number in range(6)]
    shell = shown(a_set(replicas=6, podManagementPolicy="Parallel", volumeClaimTemplates=[claim()]), *going)
    for told in (5, 6):
        await shell.reconcile()
        assert len(await failures(shell)) == told
        shell.claims.remove(ObjectKey("shop", "data-web-0"))


@pytest.mark.behaviour("AS-67", "AS-121")
@pytest.mark.parametrize(("refused", "why"), [
    (["logs"], "failed to create PVC logs-web-0: no"),
    (["data", "logs"], "[failed to create PVC data-web-0: no, failed to create PVC logs-web-0: no]"),
])  # fmt: skip
@virtual
async def test_a_refused_claim_is_reported_as_that_of_its_pod_too(refused: list[str], why: str) -> None:
    shell = shown(a_set(replicas=1, volumeClaimTemplates=[claim(), claim(name="logs")]))
    shell.server.refuse = lambda asked: any(f'"{one}-web-0"'.encode() in (asked.body or b"") for one in refused)
    with pytest.raises(KubeError, match="no"):
        await shell.reconcile()
    assert not shell.bodies("POST", "/pods")
    assert await failures(shell) == [
        *(f"create Claim {one}-web-0 for Pod web-0 in StatefulSet web failed error: no" for one in refused),
        f"create Pod web-0 in StatefulSet web failed error: {why}",
    ]
    assert condition_of(shell) == ("FailedCreatePod", f"StatefulPodControl failed to create Pod error: {why}")


@pytest.mark.behaviour("AS-40")
@pytest.mark.parametrize(("service", "subdomain"), [("web", "web"), ("", None), (None, None)])
@virtual
async def test_the_service_replaces_the_subdomain_of_the_template(service: str | None, subdomain: str | None) -> None:
    found = a_set(replicas=1, serviceName=service)
    found["spec"]["template"]["spec"]["subdomain"] = "mine"
    shell = shown(found)
    await shell.reconcile()
    (pod,) = shell.bodies("POST", "/pods")
    assert (pod["spec"]["hostname"], pod["spec"].get("subdomain")) == ("web-0", subdomain)


@pytest.mark.behaviour("AS-71")
@virtual
async def test_a_claim_of_a_former_pod_is_awaited() -> None:
    former = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "former"}
    shell = shown(a_set(replicas=2, volumeClaimTemplates=[claim()]), a_claim(0, ownerReferences=[former]), a_claim(1))
    await shell.reconcile()
    assert [made["metadata"]["name"] for made in shell.bodies("POST", "/pods")] == ["web-1"]


@pytest.mark.behaviour("AS-68", "AS-69", "AS-72")
@pytest.mark.parametrize(("scaled", "deleted", "wanted", "surplus"), [
    ("Retain", "Retain", [], []),
    ("Retain", "Delete", ["StatefulSet"], ["StatefulSet"]),
    ("Delete", "Retain", [], ["Pod"]),
    ("Delete", "Delete", ["StatefulSet"], ["Pod"]),
])  # fmt: skip
@virtual
async def test_claims_are_owned_as_the_retention_policy_says(
    scaled: str, deleted: str, wanted: list[str], surplus: list[str]
) -> None:
    policy = {"whenScaled": scaled, "whenDeleted": deleted}
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
    found = a_set(replicas=1, volumeClaimTemplates=[claim()], persistentVolumeClaimRetentionPolicy=policy)
    # The former policy was to delete them with the set.
    to_set = {key: OWNER[key] for key in ("apiVersion", "kind", "name", "uid")}
    claims = [a_claim(ordinal, ownerReferences=[foreign, to_set]) for ordinal in (0, 1)]
    shell = shown(found, a_pod(0), a_pod(1), *claims)
    await shell.reconcile()
    for ordinal, kinds in ((0, wanted), (1, surplus)):
        owners = {"StatefulSet"}
        for body in shell.bodies("PATCH", f"/persistentvolumeclaims/data-web-{ordinal}"):
            for one in body["metadata"]["ownerReferences"]:
                if "$patch" in one:
                    assert one["uid"] == UID
                    owners.remove("StatefulSet")
                else:
                    assert "controller" not in one
                    owners.add(one["kind"])
        assert owners == set(kinds)


@pytest.mark.behaviour("AS-68")
@virtual
async def test_without_the_gate_claims_are_unchanged() -> None:
    policy = {"whenScaled": "Delete", "whenDeleted": "Delete"}
    found = a_set(replicas=1, volumeClaimTemplates=[claim()], persistentVolumeClaimRetentionPolicy=policy)
    shell = shown(found, a_pod(0), a_pod(1), a_claim(0), a_claim(1), gates=Gates(auto_delete_claims=False))
    await shell.reconcile()
    assert not shell.bodies("PATCH", "/persistentvolumeclaims")


@pytest.mark.behaviour("AS-40", "AS-73", "AS-74")
@virtual
async def test_missing_claims_are_created_and_labels_corrected() -> None:
    two = [claim(), claim(name="logs")]
    wrong = a_pod(1, labels={"statefulset.kubernetes.io/pod-name": "other"})
    shell = shown(a_set(replicas=2, volumeClaimTemplates=two), a_pod(0, phase="Pending", ready=False), wrong)
    await shell.reconcile()
    made = [one["metadata"]["name"] for one in shell.bodies("POST", "/persistentvolumeclaims")]
    assert sorted(made) == ["data-web-0", "logs-web-0"]
    bodies = shell.bodies("PATCH", "/pods/web-1")
    labels = {"statefulset.kubernetes.io/pod-name": "web-1", "apps.kubernetes.io/pod-index": "1"}
    assert next(body["metadata"]["labels"] for body in bodies if "labels" in body["metadata"]) == labels
    assert not any("spec" in body for body in (*bodies, *shell.bodies("PATCH", "/pods/web-0")))


@pytest.mark.behaviour("AS-53")
@virtual
async def test_a_terminating_set_only_reports() -> None:
    found = a_set(replicas=3)
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    shell = shown(found, a_pod(0), a_pod(7))
    await shell.reconcile()
    assert {path.rpartition("/")[2] for _, path in shell.writes} == {"controllerrevisions", "status"}


@pytest.mark.behaviour("AS-38", "AS-134")
@virtual
async def test_orphans_are_adopted_and_unmatched_pods_released() -> None:
    orphans = a_pod(0, ownerReferences=[]), a_pod(1, ownerReferences=[], name="web-01")
    shell = shown(a_set(replicas=1), *orphans, live=UID)
    await shell.reconcile()
    assert [path.rpartition("/")[2] for _, path in shell.writes] == ["web-0"]
    (body,) = shell.bodies("PATCH", "/pods/web-0")
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (UID, True, True)
    shell = shown(a_set(replicas=1), a_pod(0), a_pod(1, name="web-x"), a_pod(2, labels={"app": "other"}))
    await shell.reconcile()
    for name in ("web-x", "web-2"):
        (body,) = shell.bodies("PATCH", f"/pods/{name}")
        assert body["metadata"]["ownerReferences"] == [{"$patch": "delete", "uid": UID}]


@pytest.mark.behaviour("AS-38")
@pytest.mark.parametrize("state", [{"phase": "Failed"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])
@virtual
async def test_an_unmatched_pod_that_has_ended_or_is_being_deleted_is_released_too(state: Json) -> None:
    shell = shown(a_set(replicas=1), a_pod(0, labels={"app": "other"}, ready=False, **state))
    await shell.reconcile()
    (body,) = shell.bodies("PATCH", "/pods/web-0")
    assert body["metadata"]["ownerReferences"] == [{"$patch": "delete", "uid": UID}]
    assert shell.names("DELETE") == []
    assert status_of(shell)["replicas"] == 0


@pytest.mark.behaviour("AS-38", "PM-109")
@virtual
async def test_a_finished_orphan_is_adopted() -> None:
    """Then it is replaced. Otherwise its name would stay taken."""
    shell = shown(a_set(replicas=1), a_pod(0, ownerReferences=[], phase="Failed", ready=False), live=UID)
    await shell.reconcile()
    assert shell.writes == [("PATCH", "/api/v1/namespaces/shop/pods/web-0")]


@pytest.mark.behaviour("AS-38")
@pytest.mark.parametrize("there", [True, False])
@virtual
async def test_orphaned_revisions_are_adopted(there: bool) -> None:
    """Otherwise they would outlive the set: the garbage collector deletes only owned objects."""
    orphans = [a_revision(1), a_revision(2)]
    shell = shown(a_set(replicas=0), *orphans, a_revision(3, app="other"), live=UID if there else "another")
    path = "/apis/apps/v1/namespaces/shop/controllerrevisions/web-r"
    shell.server.stored |= {f"{path}{one['revision']}": one for one in orphans}
    await shell.reconcile()
    assert shell.names("PATCH", "/controllerrevisions/") == (["web-r1", "web-r2"] if there else [])
    for body in shell.bodies("PATCH", "/controllerrevisions/web-r"):
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (UID, True)


@pytest.mark.behaviour("AS-121", "AS-147")
@virtual
async def test_a_refused_creation_is_reported_three_times_and_blocks_no_other() -> None:
    shell = shown(a_set(replicas=3))
    pods = "/api/v1/namespaces/shop/pods"
    shell.server.refuse = lambda asked: asked.path == pods and b'"web-1"' in (asked.body or b"")
    with pytest.raises(Exception, match="no"):
        await shell.reconcile()
    assert sorted(made["metadata"]["name"] for made in shell.bodies("POST", "/pods")) == ["web-0", "web-1", "web-2"]
    assert condition_of(shell) == ("FailedCreatePod", "StatefulPodControl failed to create Pod error: no")
    assert ("FailedCreate", "create Pod web-1 in StatefulSet web failed error: no") in await shell.events()


async def deleted_while_creations_fail(found: Json, *others: Json) -> list[str]:
    """Reconcile twice, the second time within the back-off, and return the names of the deleted Pods."""
    shell = shown(found, *others)
    shell.server.refuse = lambda asked: asked.method == "POST" and asked.path.endswith("/pods")
    with pytest.raises(Forbidden):
        await shell.reconcile()
    await shell.reconcile()
    return shell.names("DELETE")


@pytest.mark.behaviour("AS-55")
@virtual
async def test_no_update_begins_while_a_pod_cannot_be_created() -> None:
    old = {"controller-revision-hash": "web-r1"}
    found = {**a_set(replicas=4, updateStrategy=rolling(maxUnavailable=3)), "status": {"currentRevision": "web-r1"}}
    pods = [a_pod(ordinal, labels=old) for ordinal in range(3)]
    assert await deleted_while_creations_fail(found, a_revision(1), *pods) == []


@pytest.mark.behaviour("AS-59", "AS-64")
@virtual
async def test_a_reserved_pod_stays_while_its_replacement_cannot_be_created() -> None:
    found = a_set(replicas=2, reserveOrdinals=[1])
    assert await deleted_while_creations_fail(found, *map(a_pod, (0, 1, 3))) == ["web-3"]


@pytest.mark.behaviour("AS-123")
@virtual
async def test_a_creation_whose_name_is_taken_causes_no_event() -> None:
    shell = shown(a_set(replicas=1))
    shell.server.answer["/api/v1/namespaces/shop/pods"] = (409, "AlreadyExists")
    with pytest.raises(AlreadyExists):
        await shell.reconcile()
    assert await shell.events() == []


@pytest.mark.behaviour("AS-123")
@virtual
async def test_a_refused_deletion_causes_two_events() -> None:
    shell = shown(a_set(replicas=1, updateStrategy={"type": "OnDelete"}), a_pod(0), a_pod(1))
    shell.server.refuse = lambda asked: asked.method == "DELETE"
    with pytest.raises(Forbidden):
        await shell.reconcile()
    assert await shell.events() == [
        ("FailedDelete", "delete Pod web-1 in StatefulSet web failed error: no"),
        ("FailedDelete", "failed to delete pod web-1: no"),
    ]


@pytest.mark.behaviour("AS-121", "AS-123")
@virtual
async def test_a_refused_correction_is_reported_as_an_event_and_a_condition() -> None:
    found = a_set(replicas=2, updateStrategy={"type": "OnDelete"})
    shell = shown(found, a_pod(0, labels={"apps.kubernetes.io/pod-index": "7"}), a_pod(1))
    shell.server.refuse = lambda asked: asked.path == "/api/v1/namespaces/shop/pods/web-0"
    with pytest.raises(Forbidden):
        await shell.reconcile()
    assert await shell.events() == [("FailedUpdate", "update Pod web-0 in StatefulSet web failed error: no")]
    assert condition_of(shell) == ("FailedUpdatePod", "StatefulPodControl failed to update Pod error: no")


@pytest.mark.behaviour("AS-85", "AS-107")
@virtual
async def test_scaling_is_observed_before_an_update() -> None:
    old = {"controller-revision-hash": "web-old"}
    shell = shown(a_set(replicas=3), a_pod(0, labels=old), a_pod(1, labels=old))
    await shell.reconcile()
    assert [made["metadata"]["name"] for made in shell.bodies("POST", "/pods")] == ["web-2"]
    assert shell.names("DELETE") == []


@pytest.mark.behaviour("PM-42")
@virtual
async def test_on_delete_does_not_shorten_the_grace_period_of_an_update() -> None:
    found = a_set(replicas=1, updateStrategy={"type": "OnDelete"})
    revision = await settled(shown(found))
    shell = Shell()
    begun = {"revision": revision, "updateTimestamp": rfc3339(shell.reconciler.clock.now())}
    grace = {"revision": revision, "containerImages": {"main": "nginx:1"}, "graceSeconds": 30}
    labels = {"controller-revision-hash": revision, "lifecycle.apps.kruise.io/state": "Updating"}
    annotations = {
        f"apps.kruise.io/inplace-update-{name}": orjson.dumps(record).decode()
        for name, record in (("state", begun), ("grace", grace))
    }
    shell.show(found, a_pod(0, labels=labels, ready=False, annotations=annotations))
    assert await shell.reconcile() == Result(requeue_after=30)
    assert not shell.bodies("PATCH", "/pods/")


@pytest.mark.behaviour("AS-84")
@virtual
async def test_a_pod_counts_as_current_until_its_update_begins() -> None:
    old = {"controller-revision-hash": "web-r1"}
    found = {**a_set(replicas=3), "status": {"currentRevision": "web-r1"}}
    shell = shown(found, a_revision(1), *(a_pod(ordinal, labels=old) for ordinal in range(3)))
    await shell.reconcile()
    assert shell.names("DELETE") == ["web-2"]
    assert status_of(shell)["currentReplicas"] == 2


@pytest.mark.behaviour("AS-51", "AS-117")
@virtual
async def test_a_terminating_pod_counts_and_is_not_updated() -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    revision = {"controller-revision-hash": await settled(shown(a_set(replicas=2), a_pod(0), a_pod(1, **going)))}
    shell = shown(a_set(replicas=2), a_pod(0, labels=revision), a_pod(1, labels=revision, **going))
    await shell.reconcile()
    wanted = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 1, "currentReplicas": 1}
    assert wanted.items() <= status_of(shell).items()


RESIZING = {"volumeClaimUpdateStrategy": {"type": "OnPodRollingUpdate"}, "volumeClaimTemplates": [claim("2Gi")]}


async def grown(*claims: Json, classes: Json | None = None) -> Shell:
    """Reconcile a set of two updated Pods whose claims must grow to 2Gi."""
    revision = {"controller-revision-hash": await settled(shown(a_set(replicas=2, **RESIZING)))}
    shell = shown(
        a_set(replicas=2, **RESIZING),
        a_pod(0, labels=revision),
        a_pod(1, labels=revision),
        *claims,
        gates=Gates(auto_resize_claims=True),
    )
    shell.server.stored["/apis/storage.k8s.io/v1/storageclasses"] = classes or {"items": []}
    await shell.reconcile()
    return shell


def counted_claims(shell: Shell) -> tuple[int, int]:
    """Return how many claims are large enough, and how many of them are ready."""
    (counts,) = status_of(shell)["volumeClaims"]
    assert counts.pop("volumeClaimName") == "data"
    assert len(counts) == 2
    return counts["compatibleReplicas"], counts["compatibleReadyReplicas"]


@pytest.mark.behaviour("AS-103", "AS-104", "AS-105")
@virtual
async def test_claims_expand_in_turn() -> None:
    shell = await grown(a_claim(0), a_claim(1))
    assert not shell.bodies("PATCH", "/persistentvolumeclaims/data-web-0")
    (body,) = shell.bodies("PATCH", "/persistentvolumeclaims/data-web-1")
    assert body["spec"]["resources"] == {"requests": {"storage": "2Gi"}}
    assert body["metadata"]["annotations"] == {"apps.kruise.io/owned-by-asts": "web"}
    assert ("SuccessfulResize", "resize Claim data-web-1 Pod web-1 in StatefulSet web success") in await shell.events()
    assert shell.names("DELETE") == []


@pytest.mark.behaviour("AS-104")
@virtual
async def test_a_claim_that_may_not_grow_is_reported() -> None:
    fixed = a_claim(1)
    fixed["spec"]["storageClassName"] = "fixed"
    classes = {"items": [{"metadata": {"name": "fixed"}}]}
    shell = await grown(a_claim(0), fixed, classes=classes)
    assert not shell.bodies("PATCH", "/persistentvolumeclaims")
    assert any(reason == "FailedResize" for reason, _ in await shell.events())
    assert await shell.reconcile() == Result(requeue=True)
    other = a_claim(1)
    other["spec"]["accessModes"] = ["ReadWriteMany"]
    shell = await grown(a_claim(0), other)
    text = "failed to update pvc data-web-1: contains diff other than spec resource, wait pvc to be deleted"
    assert ("FailedUpdatePVC", text) in await shell.events()


@pytest.mark.behaviour("AS-106", "AS-108", "AS-148")
@virtual
async def test_a_large_enough_claim_stays_and_one_that_grows_at_the_mount_is_remounted() -> None:
    waiting = a_claim(1, storage="2Gi", conditions=["FileSystemResizePending"])
    shell = await grown(a_claim(0, storage="3Gi", capacity="3Gi"), waiting)
    assert not shell.bodies("PATCH", "/persistentvolumeclaims")
    assert shell.names("DELETE") == ["web-1"]
    assert counted_claims(shell) == (2, 1)


@pytest.mark.behaviour("AS-108")
@virtual
async def test_a_claim_being_deleted_is_not_counted_until_it_is_replaced() -> None:
    going = a_claim(1, storage="2Gi", capacity="2Gi", deletionTimestamp="2026-01-01T00:00:00Z")
    shell = await grown(a_claim(0, storage="2Gi", capacity="2Gi"), going)
    assert counted_claims(shell) == (1, 1)
    assert list(shell.reconciler.keys_for_claim(Change(decoded(going), None))) == [KEY]


@pytest.mark.behaviour("PM-164", "AS-145")
@pytest.mark.parametrize(("replicas", "annotation", "parallelism"), [(4, None, 2), (4, "3", 3), (3, None, None)])
@virtual
async def test_images_are_predownloaded(replicas: int, annotation: str | None, parallelism: int | None) -> None:
    strategy = {"podUpdatePolicy": "InPlaceIfPossible", "inPlaceUpdateStrategy": {"imagePreDownloadParallelism": 2}}
    after = a_set(replicas=replicas, updateStrategy=rolling(**strategy))
    first = shown(after)
    await first.reconcile()
    (revision,) = first.bodies("POST", "/controllerrevisions")
    after["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2"
    after["status"] = {"currentRevision": revision["metadata"]["name"]}
    if annotation:
        after["metadata"]["annotations"] = {"apps.kruise.io/image-predownload-parallelism": annotation}
    stored = {**revision, "metadata": {**revision["metadata"], "uid": "r1", "resourceVersion": "2"}}
    label = {"controller-revision-hash": revision["metadata"]["name"]}
    pods = [a_pod(ordinal, labels=label) for ordinal in range(replicas)]
    shell = shown(after, stored, *pods, gates=Gates(pre_download=True))
    await shell.reconcile()
    jobs = shell.bodies("POST", "/imagepulljobs")
    assert [job["spec"]["parallelism"] for job in jobs] == ([] if parallelism is None else [parallelism])


@pytest.mark.behaviour("AS-34")
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
@virtual
async def test_repairs_are_not_delayed(policy: str) -> None:
    """A burst of changes is coalesced, but OrderedReady creates no other Pod until this one is repaired."""
    shell = shown(a_set(podManagementPolicy=policy), a_pod(0, ready=False))
    await shell.reconcile()
    watch = next(one for one in shell.reconciler.watches() if one.store is shell.caches.pods)
    assert watch.delay is not None
    old, new = (decode_pod(orjson.dumps(a_pod(0, ready=ready))) for ready in (False, True))
    for change, awaited in ((Change(old, new), True), (Change(new, None), True), (Change(None, old), False)):
        assert (watch.delay(change, KEY) <= 0) is (awaited and policy == "OrderedReady")
    assert watch.delay(Change(new, new), KEY) > 0
