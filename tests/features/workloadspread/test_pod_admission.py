"""The Pod creation step and the Pod deletion guard."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from datetime import datetime
from random import Random
from typing import Any

import pytest

from app.admission.configurations import UrlEndpoint, mutating_configuration
from app.admission.pod_webhooks import MUTATE_POD, PodGuards, webhooks
from app.api import names
from app.features.workloadspread.feature import GUARDED
from app.features.workloadspread.index import PreparedSpread, SpreadIndex
from app.features.workloadspread.plan.placement import record_of, version_of, versioned_kinds
from app.features.workloadspread.plan.targets import ReplicasPathError, Whitelist, at_path, parse_whitelist, replicas_of
from app.features.workloadspread.pod_admission import Placer, WorkloadSpreadGuard, WorkloadSpreadStep
from app.features.workloadspread.types import WorkloadSpread
from app.kube.admission import Allowed, Denied, Operation, Review
from app.kube.errors import ApiError, NotFound, RequestInfo, Status
from app.kube.objects import OwnerReference
from app.kube.patches import apply
from app.kube.resources import ObjectKey
from app.kube.statuses import LocalStatuses
from app.kube.store import Store
from app.pods.admission import MutatorOrder
from app.pods.admission_draft import PodDraft, PodRefusedError
from tests.features.workloadspread.spreads import NOW, Json, spread
from tests.kit.objects import pod_review

LISTED = (
    '{"workloads":[{"Group":"example.com","Kind":"Fleet","subResources":[{"Group":"example.com","Kind":"Squad"}]}]}'
)


class Clock:
    def now(self) -> datetime:
        return NOW


class Targets:
    """Fixed owners by name and replicas; records each call."""

    def __init__(self, above: dict[str, OwnerReference | None] | None = None, wanted: int = 0) -> None:
        self.owners = above or {}
        self.number = wanted
        self.asked: list[str] = []

    async def above(self, owner: OwnerReference, namespace: str) -> OwnerReference | None:
        self.asked.append(owner.name)
        if owner.name not in self.owners:
            raise NotFound(RequestInfo("GET", "/"), Status(code=404, message=f"{namespace}/{owner.name} not found"))
        return self.owners[owner.name]

    async def wanted(self, spread: PreparedSpread) -> int:
        self.asked.append("wanted")
        return self.number


class Here:
    """A namespace with WorkloadSpreads and its Pod admission."""

    def __init__(self, *spreads: WorkloadSpread, targets: Targets | None = None, listed: str = "") -> None:
        self.store: Store[WorkloadSpread] = Store()
        self.store.replace(spreads)
        self.targets = targets or Targets()
        self.statuses = LocalStatuses(self.store)
        whitelist: Whitelist = parse_whitelist(listed)
        self.placer = Placer(
            SpreadIndex(self.store),
            self.statuses,
            self.targets,
            lambda: whitelist,
            Clock(),  # type: ignore[arg-type]  # the clock is never awaited
            Random(1),
            versioned_kinds("deployment,replicaset"),
        )

    async def create(self, pod: Json, *, dry_run: bool = False) -> Json:
        draft = PodDraft(pod, "ns")
        review = request(Operation.CREATE, pod, dry_run=dry_run)
        outcome = WorkloadSpreadStep(self.placer)(draft, review)
        assert (await outcome if isinstance(outcome, Awaitable) else outcome) is None
        result: Json = apply(draft.operations, pod)
        return result

    def missing(self, version: str = "versionIgnored") -> dict[str, int]:
        found = self.statuses.freshest(ObjectKey("ns", "ws"))
        assert found is not None
        versions = (found.status.versioned_subset_statuses or {}) if found.status is not None else {}
        return {one.name: one.missing_replicas for one in versions.get(version, [])}


def request(operation: Operation, pod: Json | None, *, old: Json | None = None, **fields: Any) -> Review:
    name = "shop-1" if pod is None else pod["metadata"].get("name", "")
    return pod_review(operation, pod, old, **{"name": name, "namespace": "ns", **fields})


def owner(kind: str = "CloneSet", name: str = "shop", group: str = "apps.kruise.io/v1alpha1") -> Json:
    return {"apiVersion": group, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def new_pod(owner_: Json | None = None, *, generated: bool = False, spec: Json | None = None, **labels: str) -> Json:
    metadata: Json = {"labels": labels, "ownerReferences": [owner_ or owner()]}
    metadata |= {"generateName": "shop-"} if generated else {"name": "shop-1"}
    return {"metadata": metadata, "spec": spec or {"containers": [{"name": "main", "image": "nginx"}]}}


def record(pod: Json) -> Json | None:
    text = pod["metadata"].get("annotations", {}).get(names.MATCHED_WORKLOAD_SPREAD)
    return json.loads(text) if text else None


A_THEN_B: dict[str, int | str | None] = {"a": 3, "b": None}


@pytest.mark.behaviour("WS-28", "WS-33")
async def test_a_pod_without_name_gets_a_uid_for_its_place() -> None:
    # [Example 20]
    here = Here(spread(A_THEN_B))
    named, generated = record(await here.create(new_pod())), record(await here.create(new_pod(generated=True)))
    assert named == {"name": "ws", "subset": "a"}
    assert generated is not None
    assert generated["subset"] == "a"
    assert len(generated["uid"]) == 36
    assert here.missing() == {"a": 1, "b": -1}


@pytest.mark.behaviour("WS-55")
async def test_a_new_pod_carries_its_deletion_cost() -> None:
    here = Here(spread(A_THEN_B))

    def cost(pod: Json) -> str | None:
        found: str | None = pod["metadata"]["annotations"].get(names.POD_DELETION_COST)
        return found

    assert [cost(await here.create(new_pod(generated=True))) for _ in range(4)] == ["200", "200", "200", "100"]
    own = new_pod(generated=True)
    own["metadata"]["annotations"] = {names.POD_DELETION_COST: "7"}
    assert cost(await here.create(own)) == "7"


@pytest.mark.behaviour("WS-21", "WS-34")
async def test_a_dry_run_changes_nothing_and_the_step_precedes_sidecars() -> None:
    here = Here(spread(A_THEN_B))
    pod = new_pod()
    assert await here.create(pod, dry_run=True) == pod
    assert here.missing() == {}
    assert MutatorOrder.READINESS_GATE < WorkloadSpreadStep.order < MutatorOrder.SIDECARS


@pytest.mark.behaviour("WS-22", "WS-23")
@pytest.mark.parametrize(
    ("owner_", "placed"),
    [
        (owner(), True),
        (owner(group="apps.kruise.io/v1beta1"), True),
        (owner(group="other.io/v1"), False),
        (owner(name="other"), False),
        (owner("DaemonSet", group="apps/v1"), False),
        ({**owner(), "controller": False}, False),
        ({"controller": True}, False),
    ],
)
async def test_a_pod_belongs_to_the_workloadspread_of_its_controller(owner_: Json, placed: bool) -> None:
    here = Here(spread(A_THEN_B))
    assert (record(await here.create(new_pod(owner_))) is not None) is placed
    assert here.targets.asked == [], "no live read of a cached object"


REPLICA_SET = owner("ReplicaSet", "shop-abc", "apps/v1")
ABOVE = {"shop-abc": OwnerReference("apps/v1", "Deployment", "shop", "d", True), "alone": None}


@pytest.mark.behaviour("WS-23", "WS-40")
async def test_a_deployment_pod_is_found_through_its_replicaset_and_counted_by_hash() -> None:
    here = Here(spread(A_THEN_B, kind="Deployment"), targets=Targets(ABOVE))
    found = await here.create(new_pod(REPLICA_SET, **{names.POD_TEMPLATE_HASH: "abc"}))
    assert record(found) == {"name": "ws", "subset": "a"}
    assert here.missing("abc") == {"a": 2, "b": -1}
    assert record(await here.create(new_pod(owner("ReplicaSet", "alone", "apps/v1")))) is None


@pytest.mark.behaviour("WS-28", "WS-40")
async def test_names_and_versions_that_no_pod_can_have_take_no_place() -> None:
    """The API server checks them only after admission. In the status they would remain for half a minute, a megabyte
    each."""
    here = Here(spread(A_THEN_B))
    named = new_pod()
    named["metadata"]["name"] = "n" * 254
    versioned = [new_pod(**{key: "v" * 64}) for key in (names.POD_TEMPLATE_HASH, names.CONTROLLER_REVISION_HASH)]
    for pod in (named, *versioned):
        assert record(await here.create(pod)) is None
    assert here.missing() == {}
    longest = new_pod(**{names.POD_TEMPLATE_HASH: "v" * 63})
    longest["metadata"]["name"] = "n" * 253
    assert record(await here.create(longest))


@pytest.mark.behaviour("WS-24")
async def test_a_missing_owner_fails_the_creation() -> None:
    here = Here(spread(A_THEN_B, kind="Deployment"), targets=Targets({}))
    with pytest.raises(PodRefusedError, match=r"an owner of the Pod was not found: ns/shop-abc not found") as refused:
        await here.create(new_pod(REPLICA_SET))
    assert refused.value.code == 500


@pytest.mark.behaviour("WS-16", "WS-17", "WS-23")
async def test_a_listed_kind_is_found_through_intermediate_owners() -> None:
    fleet = spread(A_THEN_B, kind="Fleet", group="example.com/v1")
    squad = owner("Squad", "squad-1", "example.com/v2")
    above = {"squad-1": OwnerReference("example.com/v1beta1", "Fleet", "shop", "f", True)}
    assert record(await Here(fleet, targets=Targets(above), listed=LISTED).create(new_pod(squad)))
    assert record(await Here(fleet, targets=Targets(above)).create(new_pod(squad))) is None


@pytest.mark.behaviour("WS-20")
@pytest.mark.parametrize(
    ("selector", "placed"),
    [({"matchLabels": {"tier": "web"}}, True), ({"matchLabels": {"tier": "db"}}, False), ({}, True), (None, True)],
)
async def test_the_filter_selects_and_without_selector_selects_all(selector: Json | None, placed: bool) -> None:
    obj = spread(A_THEN_B).to_dict()
    obj["spec"]["targetFilter"] = {"replicasPathList": ["spec.replicas"]} | (
        {} if selector is None else {"selector": selector}
    )
    here = Here(WorkloadSpread.model_validate(obj))
    assert (record(await here.create(new_pod(tier="web"))) is not None) is placed


FULL: Json = {
    "tolerations": [{"key": "own", "operator": "Exists"}],
    "affinity": {
        "podAffinity": {},
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                    {},
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
        },
    },
    "containers": [{"name": "main", "image": "nginx"}],
}
ZONE: Json = {"key": "zone", "operator": "In", "values": ["a"]}


def injecting(patch: Any = None, **subset: Any) -> WorkloadSpread:
    obj = spread({"a": None}).to_dict()
    obj["spec"]["subsets"] = [{"name": "a", **subset} | ({} if patch is None else {"patch": patch})]
    return WorkloadSpread.model_validate(obj)


@pytest.mark.behaviour("WS-31")
async def test_the_subset_is_merged_into_the_pod() -> None:
    given = injecting(
        requiredNodeSelector={"matchExpressions": [ZONE]},
        preferredNodeSelector=[{"weight": 7, "preference": {"matchExpressions": [ZONE]}}],
        tolerations=[{"key": "pool", "operator": "Exists"}],
    )
    found = (await Here(given).create(new_pod(spec=FULL)))["spec"]
    assert [one["key"] for one in found["tolerations"]] == ["own", "pool"]
    node = found["affinity"]["nodeAffinity"]
    assert node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "x", "operator": "Exists"}, ZONE]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}], "matchExpressions": [ZONE]},
        {},
    ]
    assert [one["weight"] for one in node["preferredDuringSchedulingIgnoredDuringExecution"]] == [1, 7]
    bare = (await Here(given).create(new_pod()))["spec"]["affinity"]["nodeAffinity"]
    assert bare["requiredDuringSchedulingIgnoredDuringExecution"] == {
        "nodeSelectorTerms": [{"matchExpressions": [ZONE]}]
    }
    assert (await Here(spread({"a": None})).create(new_pod()))["spec"]["affinity"] == {"nodeAffinity": {}}


@pytest.mark.behaviour("WS-32")
async def test_a_patch_uses_the_merge_keys_of_pods() -> None:
    patch = {
        "metadata": {"labels": {"tier": "burst"}, "annotations": {"a": "b"}},
        "spec": {
            "containers": [{"name": "main", "env": [{"name": "TIER", "value": "burst"}]}],
            "priorityClassName": "high",
            "schedulerName": None,
        },
        "status": {"phase": "Running"},
    }
    pod = new_pod(app="shop")
    pod["spec"] |= {"priority": 5, "schedulerName": "mine", "somethingNew": {"kept": True}}
    found = await Here(injecting(patch)).create(pod)
    assert found["metadata"]["labels"] == {"app": "shop", "tier": "burst"}
    assert found["metadata"]["annotations"]["a"] == "b"
    assert record(found) == {"name": "ws", "subset": "a"}
    spec = found["spec"]
    assert spec["containers"] == [{"name": "main", "image": "nginx", "env": [{"name": "TIER", "value": "burst"}]}]
    assert spec["priorityClassName"] == "high"
    assert "priority" not in spec
    assert "schedulerName" not in spec
    assert spec["somethingNew"] == {"kept": True}
    assert "status" not in found


@pytest.mark.behaviour("WS-32")
@pytest.mark.parametrize(
    "patch", ["text", {"spec": "bad"}, {"spec": {"containers": [{"image": "x"}]}}, {"metadata": {"labels": {"a": 1}}}]
)
async def test_an_inapplicable_patch_refuses_the_pod_with_a_reason(patch: Any) -> None:
    with pytest.raises(PodRefusedError, match="WorkloadSpread ns/ws, subset a: its patch cannot be applied") as refused:
        await Here(injecting(patch)).create(new_pod())
    assert refused.value.code == 500


@pytest.mark.behaviour("WS-39")
def test_no_pod_is_counted_twice_since_the_webhook_is_called_once() -> None:
    (entry,) = mutating_configuration([MUTATE_POD], UrlEndpoint("127.0.0.1", 443), "")["webhooks"]
    assert entry["reinvocationPolicy"] == "Never"


async def refuse_write(*_: Any) -> Any:
    raise ApiError(RequestInfo("PATCH", "/"), Status(code=409, message="the object has been modified"))


@pytest.mark.behaviour("WS-37")
async def test_a_failed_write_refuses_the_creation() -> None:
    here = Here(spread(A_THEN_B))
    here.statuses.decide = refuse_write  # type: ignore[method-assign]
    with pytest.raises(PodRefusedError, match="reserved in WorkloadSpread ns/ws: the object has been modified"):
        await here.create(new_pod())


def going(name: str = "shop-1", subset: str = "a", **more: Any) -> Json:
    annotations = {names.MATCHED_WORKLOAD_SPREAD: json.dumps({"Name": "ws", "SUBSET": subset})}
    metadata = {"name": name, "ownerReferences": [owner()], "annotations": annotations, **more.pop("metadata", {})}
    return {"metadata": metadata, "status": {"phase": "Running"}, **more}


def deletion(pod: Json, **fields: Any) -> Review:
    return request(Operation.DELETE, None, old=pod, **fields)


def eviction(name: str = "shop-1", **more: Any) -> Review:
    return request(Operation.CREATE, {"metadata": {"name": name}, **more}, subresource="eviction")


def counted(missing: int = 0) -> WorkloadSpread:
    entries = [
        {"name": "a", "replicas": 3 - missing, "missingReplicas": missing},
        {"name": "b", "replicas": 2, "missingReplicas": -1},
    ]
    return spread(A_THEN_B, {"versionIgnored": entries})


async def ask(here: Here, review: Review, stored: Json | None = None) -> Any:
    async def fetch(_namespace: str, _name: str) -> Json | None:
        return stored

    return await PodGuards([WorkloadSpreadGuard(here.placer)], fetch)(review)


@pytest.mark.behaviour("WS-42", "WS-43", "WS-44", "PW-23")
async def test_a_deletion_releases_its_place_and_is_never_refused() -> None:
    here = Here(counted())
    for _ in range(2):  # the second one frees nothing more
        assert await ask(here, deletion(going())) == Allowed()
        assert here.missing() == {"a": 1, "b": -1}
    assert await ask(here, eviction("shop-2"), going("shop-2")) == Allowed()
    assert here.missing() == {"a": 2, "b": -1}
    assert await ask(here, eviction("shop-2"), None) == Allowed(), "one that is gone"


@pytest.mark.behaviour("WS-42")
@pytest.mark.parametrize(
    "review",
    [
        pytest.param(deletion(going(), dry_run=True), id="a dry run"),
        pytest.param(deletion(going(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})), id="already terminating"),
        pytest.param(deletion({**going(), "status": {"phase": "Succeeded"}}), id="finished"),
        pytest.param(deletion(going(metadata={"ownerReferences": []})), id="without an owner"),
        pytest.param(deletion(going(metadata={"annotations": {names.MATCHED_WORKLOAD_SPREAD: "{"}})), id="garbage"),
        pytest.param(deletion(going(subset="gone")), id="no such subset"),
        pytest.param(deletion(going(subset="b")), id="an unlimited subset"),
        pytest.param(deletion({"metadata": "x"}), id="no Pod"),
        pytest.param(eviction(deleteOptions={"dryRun": ["All"]}), id="a dry run of an eviction"),
        pytest.param(
            request(Operation.UPDATE, going(spec={"containers": [{"name": "main", "image": "nginx:2"}]}), old=going()),
            id="an update",
        ),
        pytest.param(request(Operation.UPDATE, going(), old=going(), subresource="resize"), id="a resize"),
    ],
)
async def test_some_requests_free_no_place(review: Review) -> None:
    here = Here(counted())
    assert await ask(here, review, going()) == Allowed()
    assert here.missing() == {"a": 0, "b": -1}


@pytest.mark.behaviour("WS-44")
async def test_a_failed_write_refuses_the_deletion() -> None:
    here = Here(counted())
    here.statuses.decide = refuse_write  # type: ignore[method-assign]
    denied = Denied("the object has been modified", code=400)
    assert await ask(here, deletion(going())) == denied


@pytest.mark.behaviour("WS-42")
def test_the_webhook_is_called_only_for_annotated_pods() -> None:
    of_pods, of_evictions = webhooks((GUARDED,))
    assert names.MATCHED_WORKLOAD_SPREAD in of_pods.match_conditions[0].expression
    assert (of_pods.name, of_evictions.name) == ("vpod.kb.io", "vpodeviction.kb.io")


@pytest.mark.behaviour("WS-33")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name":"ws","subset":"a","uid":"u"}', ("ws", "a", "u")),
        ('{"Name":"ws","SubSet":"a"}', ("ws", "a", "")),
        ('{"name":1}', ("", "", "")),
        ("[]", None),
        ("{", None),
        ("", None),
        ("x" * 5000, None),
    ],
)
def test_any_record_can_be_read(text: str, found: tuple[str, str, str] | None) -> None:
    read = record_of({names.MATCHED_WORKLOAD_SPREAD: text})
    assert (read and (read.spread, read.subset, read.uid)) == found


@pytest.mark.behaviour("WS-40")
@pytest.mark.parametrize(
    ("kind", "labels", "flag", "version"),
    [
        ("ReplicaSet", {names.POD_TEMPLATE_HASH: "abc"}, "deployment", "abc"),
        ("ReplicaSet", {names.CONTROLLER_REVISION_HASH: "shop-def"}, "deployment,replicaset", "def"),
        ("ReplicaSet", {}, "deployment", "versionIgnored"),
        ("CloneSet", {names.CONTROLLER_REVISION_HASH: "shop-def"}, "deployment", "versionIgnored"),
        ("CloneSet", {names.CONTROLLER_REVISION_HASH: "shop-def"}, " CloneSet, ", "def"),
        ("ReplicaSet", {names.POD_TEMPLATE_HASH: "abc"}, "", "versionIgnored"),
    ],
)
def test_the_version_of_a_pod_depends_on_its_workload_kind(
    kind: str, labels: dict[str, str], flag: str, version: str
) -> None:
    assert version_of(kind, labels, versioned_kinds(flag)) == version


@pytest.mark.behaviour("WS-18")
def test_replicas_are_read_from_the_paths_of_the_target() -> None:
    target = {"spec": {"replicas": 7, "parallelism": 3, "groups": [{"size": 2}, {"size": 3}], "text": "5", "on": True}}
    assert replicas_of(target, ("apps", "Deployment"), ["spec.groups.0.size", "spec.groups.1.size"], "spec.x") == 5
    assert replicas_of(target, ("e.com", "Fleet"), [], "spec.replicas") == 7
    assert replicas_of(target, ("apps", "Deployment"), [], "") == 7
    assert replicas_of(target, ("batch", "Job"), [], "") == 3
    assert replicas_of({"spec": {}}, ("apps", "Deployment"), [], "") == 1
    assert replicas_of(target, ("e.com", "Fleet"), [], "") is None
    assert at_path(target, "") == 0
    for path in ("spec.text", "spec.on", "spec.groups.2.size", "spec.groups.x", "spec.none", "spec", "a." * 60):
        with pytest.raises(ReplicasPathError, match="replicas path"):
            at_path(target, path)
