"""Which changes trigger a reconcile of a CloneSet, and what delays one."""

import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from app.api import names
from app.features.cloneset.feature import FEATURE
from app.features.cloneset.plan.scale import ScalePlan
from app.features.cloneset.plan.settings import Gates, resolve_spec
from app.features.cloneset.types import CloneSet
from app.features.cloneset.writes import CloneSetState, Observed, PodsAndClaims
from app.kube.controller import Result
from app.kube.errors import Forbidden, ServerError
from app.kube.expectations import ScaleAction
from app.kube.objects import decode_controller_revision, decode_persistent_volume_claim, decode_pod
from app.kube.resources import ObjectKey
from app.kube.store import Change
from app.pods.inplace.eligibility import Blocked
from app.pods.inplace.state import UpdateSpec
from app.pods.lifecycle import LifecycleState
from app.pods.predicates import is_ready
from app.pods.revisions import Revision, revision_of, short_hash
from app.workloads.pods import InPlaceUpdates, ObservedPods
from app.workloads.settings import Revisions
from app.workloads.state import Metrics, Snapshot
from tests.features.cloneset.shell import Shell
from tests.features.cloneset.test_takeover import recorded
from tests.kit.features import context, part_of, stores_of
from tests.kube.fakes import virtual

KEY = ObjectKey("moving", "hooked")


def objects() -> dict[str, list[dict[str, Any]]]:
    """Return the CloneSet without claims and its objects, by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in recorded("01-created-v1beta1.json"):
        owners = [owner["name"] for owner in one["metadata"].get("ownerReferences", [])]
        if "hooked" in (one["metadata"]["name"], *owners):
            found.setdefault(one["kind"], []).append(one)
    return found


class HookedShell(Shell):
    async def reconcile(self, name: str = KEY.name, namespace: str = KEY.namespace) -> Result | None:
        return await super().reconcile(name, namespace)


def filled(**options: Any) -> tuple[Shell, dict[str, list[dict[str, Any]]]]:
    shell, found = HookedShell(**options), objects()
    shell.show(*(one for kind in found.values() for one in kind))
    return shell, found


def changed(found: dict[str, Any], image: str = "", **spec: Any) -> dict[str, Any]:
    """Return the CloneSet after a change by its user."""
    owner: dict[str, Any] = copy.deepcopy(found["CloneSet"][0])
    owner["metadata"] |= {"generation": 2, "resourceVersion": "700000"}
    owner["spec"] |= spec
    if image:
        owner["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return owner


def later(one: dict[str, Any], **labels: str) -> dict[str, Any]:
    """Return a later version of an object, with these labels."""
    metadata = {**one["metadata"], "labels": {**one["metadata"].get("labels", {}), **labels}}
    return {**one, "metadata": {**metadata, "resourceVersion": "700001"}}


def pod_of(found: dict[str, Any], **metadata: Any) -> Any:
    return decode_pod(orjson.dumps({**found, "metadata": {**found["metadata"], **metadata}}))


@pytest.mark.behaviour("CS-44", "CS-45", "CS-46", "CS-47", "CS-48")
@virtual
async def test_a_pod_event_enqueues_its_owner_and_possible_adopters() -> None:
    shell, found = filled()
    reconciler, uid = shell.reconciler, found["CloneSet"][0]["metadata"]["uid"]
    one = pod_of(found["Pod"][0])
    scale = reconciler.writer.expectations.scale
    reconciler.states.of(KEY, uid, reconciler.writer.expectations.forget)
    scale.expect(uid, ScaleAction.CREATE, one.metadata.name)
    other_name = {**found["Pod"][0]["metadata"]["ownerReferences"][0], "name": "x"}
    for forged in ({"namespace": "elsewhere"}, {"ownerReferences": [other_name]}):
        reconciler.mappers.keys_for_pod(Change(None, pod_of(found["Pod"][0], **forged)))
        assert scale.unsatisfied(uid) is not None
    assert list(reconciler.mappers.keys_for_pod(Change(None, one))) == [KEY]
    assert scale.unsatisfied(uid) is None
    scale.expect(uid, ScaleAction.DELETE, one.metadata.name)
    assert list(reconciler.mappers.keys_for_pod(Change(one, one))) == [KEY]
    assert scale.unsatisfied(uid) is not None
    going = pod_of(found["Pod"][0], deletionTimestamp="2026-01-01T00:00:00Z")
    assert list(reconciler.mappers.keys_for_pod(Change(one, going))) == [KEY]
    assert scale.unsatisfied(uid) is None
    orphan = pod_of(found["Pod"][0], ownerReferences=[])
    assert list(reconciler.mappers.keys_for_pod(Change(one, orphan))) == [KEY]
    assert list(reconciler.mappers.keys_for_pod(Change(None, orphan))) == []


@pytest.mark.behaviour("CS-91")
@pytest.mark.parametrize("excluded", [False, True])
def test_the_flag_excludes_pods_in_preparing_delete_of_all_sets(excluded: bool) -> None:
    part = part_of(FEATURE, "cloneset-controller")
    flag = f"--cloneset-scaling-exclude-preparing-delete={str(excluded).lower()}"
    reconciler: Any = part.make(context(part, Shell().client, stores_of(part), flags=(flag,))).reconcile
    found = reconciler.resolve(CloneSet.model_validate(objects()["CloneSet"][0]))
    assert found.settings.exclude_preparing_delete == excluded


@pytest.mark.behaviour("CS-9", "CS-91")
@virtual
async def test_a_label_that_is_a_field_in_v1beta1_counts_despite_the_same_generation() -> None:
    """The API server increments the generation by the written version, whose spec is unchanged."""
    shell, found = filled(gates=Gates())
    owner = changed(found, lifecycle={"preDelete": {"finalizersHandler": ["example.com/hold"]}})
    pod = later(found["Pod"][0], **{names.LIFECYCLE_STATE: "PreparingDelete", names.SPECIFIED_DELETE: "true"})
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    shell.show(owner, pod)
    await shell.reconcile()
    assert "pods" not in shell.names("POST")
    owner["spec"]["scaleStrategy"] = {**owner["spec"].get("scaleStrategy", {}), "excludePreparingDelete": True}
    shell.show(later(owner, **{"apps.kruise.io/cloneset-scaling-exclude-preparing-delete": "true"}))
    await shell.reconcile()
    assert "pods" in shell.names("POST")


@pytest.mark.behaviour("CS-52", "CS-65", "CS-171", "CS-175", "CS-176")
@pytest.mark.parametrize(
    ("force", "unseen", "dropped"),
    [(True, 1, True), (False, 0, True), (False, 1, False)],
    ids=["forced", "none", "one"],
)
@virtual
async def test_an_expectation_delays_the_reconcile_until_it_times_out(force: bool, unseen: int, dropped: bool) -> None:
    """Without the gate it counts on, as long as the API server has Pods that the cache does not show."""
    leaked: list[str] = []

    class Leaks(Metrics):
        def expectation_leaked(self, namespace: str, name: str) -> None:
            leaked.append(name)

    shell, found = filled(metrics=Leaks(), expectation_timeout=60.0, force_expectations=force)
    uid, live = found["CloneSet"][0]["metadata"]["uid"], found["Pod"][unseen:]
    foreign = {**live[0], "metadata": {**live[0]["metadata"], "uid": "foreign", "ownerReferences": []}}
    shell.server.stored["/api/v1/namespaces/moving/pods"] = {"items": [*live, foreign]}
    shell.reconciler.writer.expectations.scale.expect(uid, ScaleAction.CREATE, "hooked-never")
    assert await shell.reconcile() == Result(requeue_after=60.0)
    await shell.clock.sleep(61)
    assert await shell.reconcile() == Result(requeue_after=10.0)
    assert leaked == ["hooked"]
    assert (shell.server.requests == []) is force
    await shell.reconcile()
    assert (shell.writes != []) is dropped


@pytest.mark.behaviour("CS-50", "CS-51", "CS-67")
@virtual
async def test_a_set_that_is_gone_terminating_or_unreadable_is_left_alone() -> None:
    shell = HookedShell()
    assert await shell.reconcile() is None
    shell, found = filled()
    shell.show(changed(found, selector={"matchExpressions": [{"key": "app", "operator": "Nonsense"}]}))
    assert await shell.reconcile() is None
    assert shell.server.requests == []
    owner = later(changed(found, replicas=9))
    owner["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 3}
    shell.show(owner)
    await shell.reconcile()
    assert {path.rsplit("/", 1)[-1] for _, path in shell.writes} == {"status"}


@pytest.mark.behaviour("CS-44")
@virtual
async def test_our_own_status_write_causes_no_reconcile_unless_the_cache_missed_a_change() -> None:
    shell, found = filled()
    known = changed(found, replicas=9)
    shell.show(known)
    await shell.reconcile()
    assert shell.writes[-1][1].endswith("/status")

    def seen(**metadata: Any) -> CloneSet:
        return CloneSet.model_validate({**known, "metadata": {**known["metadata"], **metadata}})

    version = str(shell.server.version)
    old, ours = seen(), seen(resourceVersion=version)
    assert list(shell.reconciler.mappers.keys_for_workload(Change(old, ours))) == []
    for missed in ({"generation": 3}, {"annotations": {"a": "b"}}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
        change = Change(old, seen(resourceVersion=version, **missed))
        assert list(shell.reconciler.mappers.keys_for_workload(change)) == [KEY]
    assert list(shell.reconciler.mappers.keys_for_workload(Change(None, ours))) == [KEY]
    assert list(shell.reconciler.mappers.keys_for_workload(Change(old, seen(resourceVersion="700001")))) == [KEY]


@pytest.mark.behaviour("CS-49")
@virtual
async def test_a_claim_event_concerns_its_cloneset() -> None:
    shell, web = Shell(), ObjectKey("moving", "web")
    claim = next(one for one in recorded("01-created-v1beta1.json") if one["kind"] == "PersistentVolumeClaim")
    changes = ({}, {"ownerReferences": []}, {"deletionTimestamp": "2026-01-01T00:00:00Z"})
    own, released, going = (
        decode_persistent_volume_claim(orjson.dumps(later({**claim, "metadata": claim["metadata"] | one})))
        for one in changes
    )
    mappers = shell.reconciler.mappers
    for before, after in ((None, own), (own, None), (own, released), (released, own), (own, going)):
        change = Change(before, after)
        assert list(mappers.keys_for_claim(change)) == [web]
    assert list(mappers.keys_for_claim(Change(own, own))) == []
    revision = decode_controller_revision(
        orjson.dumps(next(one for one in recorded("01-created-v1beta1.json") if one["kind"] == "ControllerRevision"))
    )
    assert list(mappers.keys_for_revision(Change(None, revision))) == []
    assert "Nodes" not in {watched.name for watched in FEATURE.controllers[0].watched}


@pytest.mark.behaviour("CS-159", "CS-163", "CS-165")
@pytest.mark.parametrize(("policy", "replicas", "reason", "message"), [
    ("ReCreate", 2, "FailedDelete", "failed to delete pod {pod}: no"),
    ("ReCreate", 3, "FailedUpdatePodReCreate",
     "failed to patch pod specified-delete {pod} for update(revision {revision}): no"),
    ("InPlaceIfPossible", 3, "FailedUpdatePodInPlace", "failed to update pod {pod} in-place(revision {revision}): no"),
])  # fmt: skip
@virtual
async def test_a_refused_write_to_a_pod_is_reported_by_an_event(
    policy: str, replicas: int, reason: str, message: str
) -> None:
    shell, found = filled()
    owner = changed(found, "nginx:9" if replicas == 3 else "", replicas=replicas, lifecycle={})
    owner["spec"]["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"] = policy
    shell.show(owner)
    shell.server.refuse = lambda request: "/pods/" in request.path and request.method != "GET"
    with pytest.raises(Forbidden):
        await shell.reconcile()
    status = next(body["status"] for _, path, body in shell.server.requests if path.endswith("/hooked/status"))
    (told,) = await shell.events(reason)
    assert told["type"] == "Warning"
    pod = told["message"].partition(" hooked-")[2].partition(" ")[0].rstrip(":")
    revision = status.get("updateRevision", "")
    assert told["message"] == message.format(pod=f"hooked-{pod}", revision=revision)
    failed = "FailedScale" if replicas == 2 else "FailedUpdate"
    assert {"type": failed, "status": "True", "message": "no"}.items() <= status["conditions"][-1].items()


@pytest.mark.behaviour("PM-10")
def test_a_late_revision_does_not_block_in_place_updates() -> None:
    found = objects()
    settings = resolve_spec(CloneSet.model_validate(found["CloneSet"][0]), Gates()).settings
    own = revision_of(decode_controller_revision(orjson.dumps(found["ControllerRevision"][-1])))
    target = Revision("hooked-next", 2, own.data.replace(b'"image":"', b'"image":"next-'))
    updates, at = InPlaceUpdates(), short_hash(own.name)
    assert isinstance(updates.spec_between(at, target, [target], settings), Blocked)  # its own revision is not known
    assert not isinstance(updates.spec_between(at, target, [own, target], settings), Blocked)


@pytest.mark.behaviour("CS-135")
@virtual
async def test_a_pod_scheduled_meanwhile_is_left_to_the_readiness_controller() -> None:
    shell, found = filled()
    body = later(found["Pod"][0], **{names.LIFECYCLE_STATE: "PreparingNormal"})
    body["metadata"]["annotations"].pop("apps.kruise.io/inplace-update-state", None)
    body["status"] = {"phase": "Pending"}
    node = body["spec"].pop("nodeName")
    writer, uid = shell.reconciler.writer, found["CloneSet"][0]["metadata"]["uid"]
    waiting = pod_of(body)
    await writer.set_state(uid, waiting, LifecycleState.PREPARING_DELETE, None)
    [(_, _, patch)] = shell.server.requests
    assert patch["metadata"]["resourceVersion"] == waiting.metadata.resource_version
    awaits_initial_conditions = pod_of({**body, "spec": {**body["spec"], "nodeName": node}})
    await writer.set_state(uid, awaits_initial_conditions, LifecycleState.PREPARING_DELETE, None)
    assert len(shell.server.requests) == 1


@pytest.mark.behaviour("PM-29", "PM-71")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(
    ("live", "was_ready", "goes_on"),
    [
        ({}, True, [True, False]),
        ({"lifecycle.apps.kruise.io/state": "PreparingDelete"}, True, []),
        ({"controller-revision-hash": "newer"}, True, [False]),
        ({}, False, []),
    ],
    ids=["the same state", "another state", "another revision", "ready by now"],
)
@virtual
async def test_after_a_conflict_a_pod_advances_only_from_its_chosen_state(
    live: dict[str, str], was_ready: bool, goes_on: list[bool], in_place: bool
) -> None:
    """A delayed request may arrive after another leader has updated the Pod or told it to prepare for deletion. A Pod
    that was not ready when it was chosen used up no budget, so it may not be taken down once it is ready."""
    shell, found = filled()
    body = found["Pod"][0]
    newer = later(body, **{names.LIFECYCLE_STATE: "Normal", **live})
    body["metadata"]["labels"][names.LIFECYCLE_STATE] = "Normal"
    assert is_ready(pod_of(newer))
    if not was_ready:
        body = {**body, "status": {**body["status"], "conditions": []}}
    path = f"/api/v1/namespaces/moving/pods/{body['metadata']['name']}"
    shell.server.stored[path] = newer
    writer, uid = shell.reconciler.writer, found["CloneSet"][0]["metadata"]["uid"]
    if in_place:
        at = body["metadata"]["labels"]["controller-revision-hash"]
        await writer.update_in_place(uid, pod_of(body), UpdateSpec(revision="next"), {}, revision=at)
    else:
        await writer.set_state(uid, pod_of(body), LifecycleState.PREPARING_UPDATE, None)
    sent = [body["metadata"] for method, _, body in shell.server.requests if method == "PATCH"]
    written = [one.get("resourceVersion") for one in sent]
    assert written == [body["metadata"]["resourceVersion"], *(["700001"] if in_place in goes_on else [])]


@pytest.mark.behaviour("PM-173")
@pytest.mark.parametrize(("live", "told"), [("Normal", 1), ("PreparingDelete", 0)])
@virtual
async def test_an_update_that_lost_a_race_is_not_reported_as_begun(live: str, told: int) -> None:
    shell, found = filled()
    owner = changed(found, "nginx:9", lifecycle={})
    owner["spec"]["updateStrategy"]["rollingUpdate"] |= {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}
    shell.show(owner)
    for one in found["Pod"]:
        newer = later(one, **{names.LIFECYCLE_STATE: live})
        shell.server.stored[f"/api/v1/namespaces/moving/pods/{one['metadata']['name']}"] = newer
    await shell.reconcile()
    assert len(await shell.events("SuccessfulUpdatePodInPlace")) == told


@pytest.mark.behaviour("CS-122")
@virtual
async def test_a_pod_whose_state_changed_is_not_updated_in_the_same_reconcile() -> None:
    shell, found = filled()
    owner = changed(found, "nginx:9", lifecycle={})
    strategy = {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": "100%"}
    owner["spec"]["updateStrategy"]["rollingUpdate"] |= strategy
    moving = later(found["Pod"][0], **{names.LIFECYCLE_STATE: "Updating"})
    shell.show(owner, moving)
    await shell.reconcile()
    patched = shell.bodies("PATCH", moving["metadata"]["name"])
    assert [body["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] for body in patched] == ["Updated"]
    assert len(shell.bodies("PATCH", "/pods/")) > 1


@pytest.mark.behaviour("PM-10", "CS-73")
@pytest.mark.parametrize("recorded_still", [True, False])
@virtual
async def test_a_revision_missing_from_the_cache_is_read_before_a_pod_is_replaced_for_it(recorded_still: bool) -> None:
    """A new leader may see Pods before the revision they were created from."""
    shell, found = HookedShell(), objects()
    (old,) = found.pop("ControllerRevision")
    path = f"/apis/apps/v1/namespaces/moving/controllerrevisions/{old['metadata']['name']}"
    if recorded_still:
        shell.server.stored[path] = old
    shell.show(changed(found, "nginx:9", lifecycle={}), *found["Pod"])
    await shell.reconcile()
    marked = [body for _, path, body in shell.server.requests if "specified-delete" in orjson.dumps(body).decode()]
    in_place = await shell.events("SuccessfulUpdatePodInPlace")
    assert (bool(in_place), bool(marked)) == (recorded_still, not recorded_still)
    await shell.reconcile()
    assert [seen for _, seen, _ in shell.server.requests].count(path) == 1


@pytest.mark.behaviour("CS-73", "CS-93")
@virtual
async def test_the_current_revision_is_read_before_pods_are_created_at_another() -> None:
    shell, found = HookedShell(), objects()
    (old,) = found.pop("ControllerRevision")
    owner = changed(found, "nginx:9", replicas=4)
    owner["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 4
    owner["status"]["currentRevision"] = old["metadata"]["name"]
    shell.server.stored[f"/apis/apps/v1/namespaces/moving/controllerrevisions/{old['metadata']['name']}"] = old
    shell.show(owner, *found["Pod"])
    await shell.reconcile()
    (made,) = shell.bodies("POST", "/pods")
    assert made["metadata"]["labels"]["controller-revision-hash"] == old["metadata"]["name"]


@pytest.mark.behaviour("CS-160", "CS-120")
@virtual
async def test_a_claim_that_cannot_be_given_to_its_ended_pod_is_reported() -> None:
    shell = Shell()
    found = recorded("01-created-v1beta1.json")
    pod = next(one for one in found if one["kind"] == "Pod" and one["metadata"]["name"].startswith("web-"))
    pod["status"]["phase"] = "Failed"
    shell.show(*(one for one in found if one["kind"] in shell.decoders))
    shell.server.refuse = lambda request: "/persistentvolumeclaims/" in request.path
    with pytest.raises(Forbidden):
        await shell.reconcile("web", "moving")
    (told,) = await shell.events("FailedUpdate")
    assert (told["type"], told["message"]) == ("Warning", f"failed to update PVC data-{pod['metadata']['name']}: no")


def snapshot_of(owner: CloneSet) -> Observed:
    nothing = Revision("", 0, b"")
    resolved, revisions = resolve_spec(owner, Gates()), Revisions(nothing, nothing, ())
    return Snapshot(
        workload=owner,
        state=CloneSetState(owner.metadata.uid, KEY),
        resolved=resolved,
        status={},
        observed=ObservedPods([], [], []),
        claims=[],
        revisions=revisions,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )


def claim_of(found: dict[str, Any], instance: str, **more: Any) -> Any:
    """A claim of an instance of the CloneSet, as the cache holds it."""
    metadata = {
        "name": f"data-hooked-{instance}",
        "namespace": "moving",
        "uid": f"uid-{instance}",
        "resourceVersion": "1",
        "labels": {"apps.kruise.io/cloneset-instance-id": instance},
        "ownerReferences": found["Pod"][0]["metadata"]["ownerReferences"],
        **more,
    }
    return decode_persistent_volume_claim(orjson.dumps({"kind": "PersistentVolumeClaim", "metadata": metadata}))


@pytest.mark.behaviour("CS-60", "CS-106")
@virtual
async def test_a_reconcile_that_deleted_a_pod_updates_none_even_if_claims_stay() -> None:
    shell, found = filled()
    pods = [pod_of(one) for one in found["Pod"]]
    owner = changed(found, "nginx:2", replicas=len(pods) - 1, lifecycle={})
    shell.show(owner)
    claims = [claim_of(found, pod.metadata.labels["apps.kruise.io/cloneset-instance-id"]) for pod in pods]
    for claim in claims:
        shell.caches.claims.put(claim)
        path = f"/api/v1/namespaces/moving/persistentvolumeclaims/{claim.metadata.name}"
        shell.server.answer[path] = (500, "InternalError")
    with pytest.raises(ServerError):
        await shell.reconcile()
    assert [method for method, path in shell.writes if "/pods/" in path] == ["DELETE"]


@pytest.mark.behaviour("CS-119")
@pytest.mark.parametrize(("kept", "taken"), [(True, False), (False, False), (False, True)])
def test_ids_of_failed_creations_come_after_those_with_claims(kept: bool, taken: bool) -> None:
    """The id is reused for claims that may already exist, but not before a Pod that is still expected, nor if a foreign
    Pod has the name by now."""
    shell, found = filled()
    owner = CloneSet.model_validate(found["CloneSet"][0])
    going = pod_of(found["Pod"][0], deletionTimestamp="2026-01-01T00:00:00Z")
    instance = going.metadata.labels["apps.kruise.io/cloneset-instance-id"]
    claims = [claim_of(found, instance)] if kept else []
    snapshot, there = snapshot_of(owner), PodsAndClaims([], [going], claims, lambda id_: taken and id_ == "7f4x2")
    snapshot.state.failed_ids = {"7f4x2"}
    ids, waiting = shell.reconciler._scaler._instance_ids(snapshot, there, 1)
    assert (len(ids), waiting) == ((0, [going]) if kept else (1, []))
    assert ("7f4x2" in ids) is not (kept or taken)


@pytest.mark.behaviour("CS-119")
@pytest.mark.parametrize(("reuse", "ended", "used", "waits"), [(True, 0, 1, 1), (False, 0, 2, 0), (True, 1, 2, 0)])
def test_only_creations_without_free_claims_wait(reuse: bool, ended: bool, used: int, waits: int) -> None:
    """They wait for terminating Pods, not for ended ones, which may stay forever."""
    shell, found = filled()
    spec = changed(found, scaleStrategy={"enablePVCReuse": reuse})
    going = [pod_of(one, **({} if ended else {"deletionTimestamp": "2026-01-01T00:00:00Z"})) for one in found["Pod"]]
    held = [claim_of(found, pod.metadata.labels["apps.kruise.io/cloneset-instance-id"]) for pod in going]
    there = PodsAndClaims([], going, [claim_of(found, "aaaaa"), *held])
    ids, waiting = shell.reconciler._scaler._instance_ids(snapshot_of(CloneSet.model_validate(spec)), there, 2)
    assert len(going) > 1
    assert "aaaaa" in ids
    assert (len(ids), len(waiting)) == (used, waits)


@pytest.mark.behaviour("CS-73", "CS-100")
@virtual
async def test_an_unusable_current_revision_is_replaced_by_the_update_revision() -> None:
    shell, found = filled()
    snapshot = snapshot_of(CloneSet.model_validate(found["CloneSet"][0]))
    by_hand = Revision("hooked-byhand", 1, b"{}")
    update = Revision("hooked-update", 2, snapshot.resolved.content.data)
    snapshot = replace(snapshot, revisions=Revisions(by_hand, update, [by_hand, update]))
    await shell.reconciler._scaler.carry_out(snapshot, PodsAndClaims([], [], []), ScalePlan(create_current=1), 0.0)
    (made,) = shell.bodies("POST", "/pods")
    assert made["metadata"]["labels"]["controller-revision-hash"] == "hooked-update"


@pytest.mark.behaviour("CS-100")
@virtual
async def test_a_marked_pod_is_deleted_while_another_cannot_be_created() -> None:
    """Its deletion may free the quota that the other lacks."""
    shell, found = filled()
    broken = later(found["Pod"][0], **{names.SPECIFIED_DELETE: "true"})
    broken["status"]["phase"] = "Pending"
    shell.show(changed(found, replicas=len(found["Pod"]) + 1, lifecycle={}), broken)
    shell.server.refuse = lambda asked: asked.method == "POST" and asked.path.endswith("/pods")
    with pytest.raises(Forbidden):
        await shell.reconcile()
    assert shell.names("DELETE") == [broken["metadata"]["name"]]


@virtual
async def test_released_pods_are_replaced_even_if_the_set_cannot_be_read() -> None:
    """Roles of an older release lack that right."""
    shell, found = filled()
    await shell.reconcile()
    pod = pod_of(found["Pod"][0])
    shell.caches.pods.remove(ObjectKey("moving", pod.metadata.name))
    shell.reconciler.mappers.keys_for_pod(Change(pod, None))
    shell.server.refuse = lambda request: request.path.endswith("/clonesets/hooked") and request.method == "GET"
    shell.server.requests.clear()
    await shell.reconcile()
    assert shell.names("POST").count("pods") == 1


@pytest.mark.behaviour("CS-120")
@pytest.mark.parametrize("there", [True, False])
@virtual
async def test_a_claim_is_orphaned_only_if_its_pod_is_really_gone(there: bool) -> None:
    """The Pod watch may lag behind the claim watch."""
    shell, found = filled()
    owner = shell.caches.workloads.list()[0]
    if there:
        shell.server.stored["/api/v1/namespaces/moving/pods/hooked-gx7bz"] = found["Pod"][0]
    claim = claim_of(found, "gx7bz")
    cleaned = await shell.reconciler._scaler.clean_up_claims(snapshot_of(owner), PodsAndClaims([], [], [claim]))
    assert cleaned.claims == ([claim] if there else [])
    assert (shell.writes == []) is there


@pytest.mark.behaviour("CS-62")
@virtual
async def test_only_names_of_deleted_pods_leave_the_list_of_pods_to_delete() -> None:
    shell, found = filled()
    there = found["Pod"][0]["metadata"]["name"]
    shell.show(changed(found, scaleStrategy={"podsToDelete": ["gone", there]}))
    await shell.reconcile()
    (operations,) = shell.bodies("PATCH", "/clonesets/hooked")[-1:]
    path = "/spec/scaleStrategy/podsToDelete"
    assert operations[1:] == [
        {"op": "test", "path": path, "value": ["gone", there]},
        {"op": "replace", "path": path, "value": [there]},
    ]


@pytest.mark.behaviour("CS-106")
@virtual
async def test_a_forbidden_deletion_of_a_claim_does_not_block_scaling() -> None:
    shell, found = filled()
    snapshot, claim = snapshot_of(shell.caches.workloads.list()[0]), claim_of(found, "gx7bz")
    snapshot.state.deleted_ids = {"gx7bz"}
    shell.server.refuse = lambda asked: asked.method == "DELETE"
    there, plan = PodsAndClaims([], [], [claim]), ScalePlan()
    outcomes = [await shell.reconciler._scaler.carry_out(snapshot, there, plan, 0.0) for _ in range(2)]
    assert [outcome.error is not None for outcome in outcomes] == [True, False]


@pytest.mark.behaviour("CS-106")
@pytest.mark.parametrize("replicas_then", [0, 2])
@virtual
async def test_claims_are_deleted_after_their_pod_despite_an_error(replicas_then: int) -> None:
    shell, found = filled()
    owner = changed(found, replicas=0, lifecycle={}, scaleStrategy={"enablePVCReuse": True})
    pods = [pod_of(one) for one in found["Pod"]]
    shell.show(owner)
    instance = pods[0].metadata.labels["apps.kruise.io/cloneset-instance-id"]
    claim = claim_of(found, instance)
    shell.caches.claims.put(claim)
    path = f"/api/v1/namespaces/moving/persistentvolumeclaims/{claim.metadata.name}"
    shell.server.answer[path] = (500, "InternalError")
    with pytest.raises(ServerError):
        await shell.reconcile()
    assert not shell.names("PATCH", "/pods/")  # CS-60
    for pod in pods:
        shell.caches.pods.remove(ObjectKey("moving", pod.metadata.name))
        shell.reconciler.mappers.keys_for_pod(Change(pod, None))
    del shell.server.answer[path]
    shell.server.requests.clear()
    owner["spec"]["replicas"] = replicas_then
    owner["metadata"]["generation"] = 3
    shell.show(later(owner))
    await shell.reconcile()
    assert ("DELETE", path) in shell.writes
    assert "pods" not in shell.names("POST"), "no Pod is created with a claim that is being deleted"
