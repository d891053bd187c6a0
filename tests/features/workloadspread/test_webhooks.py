"""The webhook of WorkloadSpread: refusals, warnings and patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from app.api import names, structural
from app.api.conversion import convert
from app.api.core.pods import pod_errors
from app.features.workloadspread import webhooks
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.plan.targets import KNOWN_OWNERS, parse_whitelist
from app.features.workloadspread.types import TargetReference, WorkloadSpread
from app.features.workloadspread.webhooks import CustomWorkloads, SpreadLookups, template_of
from app.framework.watched import CONFIGURATION, Stores
from app.kube.admission import STRANGER
from app.kube.fielderrors import Path
from app.kube.objects import ConfigMap, ObjectMeta
from app.kube.store import Store
from app.manager.gates import parse_gates
from app.pods.custom_workloads import WhitelistError
from tests.admission.writing import ALPHA, BETA, Written, written
from tests.fuzz import cost

Json = dict[str, Any]
CLONE_SET = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "shop"}


def spread(
    *subsets: Json,
    target: Json = CLONE_SET,
    version: str = BETA,
    name: str = "ws",
    **spec: Any,
) -> Json:
    return {
        "apiVersion": version,
        "kind": "WorkloadSpread",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"targetRef": target, "subsets": list(subsets), **spec},
    }


def stores() -> Stores:
    return Stores((webhooks.SPREADS, CONFIGURATION))


class Lookups(SpreadLookups):
    def __init__(self, template: Json | None = None, others: Sequence[Json] = ()) -> None:
        super().__init__(None, stores(), "kruise-system")
        self._template = template
        self._others = [WorkloadSpread.model_validate(one) for one in others]

    async def others(self, namespace: str) -> Sequence[WorkloadSpread]:
        return self._others

    async def template(self, target: TargetReference, namespace: str) -> Mapping[str, Any] | None:
        return self._template

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str]:
        return list(map(str, pod_errors(template["spec"]["containers"], [], [], Path("spec"))))


def create(obj: Json, lookups: SpreadLookups | None = None, old: Json | None = None, enabled: bool = True) -> Written:
    return written(WORKLOAD_SPREAD, webhooks.handlers(lookups or Lookups(), enabled=enabled), obj, old)


A, B = {"name": "a", "maxReplicas": 3}, {"name": "b"}


def test_a_subset_that_leaves_no_pods_for_later_ones_gets_a_warning() -> None:
    said = "spec.subsets[1]: has no maxReplicas, so it takes all Pods and leaves none for c, d"
    subsets = [A, B, {"name": "c"}, {"name": "d"}]
    assert create(spread(*subsets)).warnings == (said,)
    never, soon = ({"type": "Adaptive", "adaptive": {"rescheduleCriticalSeconds": seconds}} for seconds in (0, 30))
    assert create(spread(*subsets, scheduleStrategy=never)).warnings == (said,)
    assert create(spread(*subsets, scheduleStrategy=soon)).warnings == ()


@pytest.mark.behaviour("WS-9", "WS-12")
@pytest.mark.parametrize(
    ("numbers", "target", "refused"),
    [
        (["30%", "70%"], "CloneSet", ""),
        (["30%", None], "CloneSet", ""),
        (["30%", "60%"], "CloneSet", "spec.subsets[0].maxReplicas"),
        (["60%", "60%"], "CloneSet", "spec.subsets[1].maxReplicas"),
        (["30%", 3], "CloneSet", "spec.subsets[1].maxReplicas"),
        ([3, "30%"], "CloneSet", "spec.subsets[1].maxReplicas"),
        (["0.2%", None], "CloneSet", "spec.subsets[0].maxReplicas"),
        (["-1%", None], "CloneSet", "spec.subsets[0].maxReplicas"),
        ([-100, None], "CloneSet", "spec.subsets[0].maxReplicas"),
        (["abc", None], "CloneSet", "spec.subsets[0].maxReplicas"),
        (["30%", None], "StatefulSet", "spec.subsets[0].maxReplicas"),
        ([0, None], "StatefulSet", ""),
        ([2**31, None], "CloneSet", "spec.subsets[0].maxReplicas"),
    ],
)
def test_subset_limits_are_consistent(numbers: list[Any], target: str, refused: str) -> None:
    subsets = [
        {"name": f"s{n}"} | ({} if number is None else {"maxReplicas": number}) for n, number in enumerate(numbers)
    ]
    found = create(spread(*subsets, target={"apiVersion": "apps.kruise.io/v1beta1", "kind": target, "name": "w"}))
    assert (found.obj is None) is bool(refused)
    assert found.message.startswith(refused)


@pytest.mark.behaviour("WS-9", "WS-12")
def test_checking_subsets_stops_at_the_first_wrong_number() -> None:
    negative, same, unnamed = {"name": "a", "maxReplicas": -1}, {"name": "a"}, {"name": ""}
    number = (
        'spec.subsets[{}].maxReplicas: Invalid value: intstr.IntOrString{{Type:0, IntVal:-1, StrVal:""}}: '
        "maxReplicas is not valid for subset"
    )
    assert create(spread(negative, same)).message == number.format(0)
    assert create(spread(negative, negative)).message == number.format(0)
    duplicate = 'spec.subsets[1].name: Invalid value: "a": duplicated subset name a'
    assert create(spread(same, negative, unnamed)).message == f"[{duplicate}, {number.format(1)}]"
    assert create(spread(same, same, unnamed)).message == f"[{duplicate}, spec.subsets[2].name: Required value]"


@pytest.mark.behaviour("WS-13", "WS-69")
@pytest.mark.parametrize(
    ("subsets", "seconds", "fits"),
    [
        (2, 295, True),
        (2, 296, False),
        (3, 147, True),
        (3, 148, False),
        (4, 99, False),
        (5, 73, True),
        (5, 74, False),
        (1, 100_000, True),
        (2, -1, False),
    ],
)
def test_the_strategy_leaves_time_for_all_subsets(subsets: int, seconds: int, fits: bool) -> None:
    each = [{"name": f"s{n}", "maxReplicas": 1} for n in range(subsets - 1)]
    strategy = {"type": "Adaptive", "adaptive": {"rescheduleCriticalSeconds": seconds}}
    found = create(spread(*each, {"name": "last"}, scheduleStrategy=strategy))
    assert (found.obj is not None) is fits
    assert fits or "rescheduleCriticalSeconds" in found.message


@pytest.mark.behaviour("WS-13")
@pytest.mark.parametrize(
    ("last", "type_", "field"), [(B, "Fixed", "type"), (B, "", "type"), ({**A, "name": "b"}, "Adaptive", "adaptive")]
)
def test_only_an_adaptive_strategy_has_its_settings_and_needs_an_unlimited_last_subset(
    last: Json, type_: str, field: str
) -> None:
    found = create(spread(A, last, scheduleStrategy={"type": type_, "adaptive": {}} if type_ else {"adaptive": {}}))
    assert found.message.startswith(f"spec.scheduleStrategy.{field}: ")


@pytest.mark.behaviour("WS-10")
def test_terms_and_tolerations_are_validated_as_in_a_pod() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In"}]}
    for version, required, preferred in (
        (BETA, "requiredNodeSelector", "preferredNodeSelector"),
        (ALPHA, "requiredNodeSelectorTerm", "preferredNodeSelectorTerms"),
    ):
        subset = {
            "name": "a",
            required: term,
            preferred: [{"weight": 101, "preference": {"matchFields": [{"key": "x", "operator": "Exists"}]}}],
            "tolerations": [{"key": "k", "operator": "Exists", "value": "v"}, {"operator": "Equal"}],
        }
        message = create(spread(subset, version=version)).message
        for field in (
            f"spec.subsets[0].{required}.matchExpressions[0].values: Required value",
            f"spec.subsets[0].{preferred}[0].weight: Invalid value: 101: must be in the range 1-100",
            f"spec.subsets[0].{preferred}[0].preference.matchFields[0].operator",
            f"spec.subsets[0].{preferred}[0].preference.matchFields[0].key",
            "spec.subsets[0].tolerations[0].operator: Invalid value: core.Toleration{",
            "spec.subsets[0].tolerations[1].operator",
        ):
            assert field in message


@pytest.mark.behaviour("WS-14")
def test_a_workload_has_one_immutable_workloadspread() -> None:
    other = spread(A, B, name="other", target={**CLONE_SET, "apiVersion": "apps.kruise.io/v1beta1"})
    found = create(spread(A, B), Lookups(others=[other])).message
    assert "ws.spec.targetRef is in conflict with other WorkloadSpread other: " in found
    itself = spread(A, B)
    assert create(itself, Lookups(others=[itself]), old=itself).obj
    newer = spread(A, B, target={**CLONE_SET, "apiVersion": "apps.kruise.io/v1beta1"})
    assert create(newer, old=itself).obj, "the version may change"
    wrong = spread(A, B, targetFilter={"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}})
    assert "spec.targetFilter.selector" in create(wrong).message


TEMPLATE = {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "main", "image": "nginx"}]}}


@pytest.mark.behaviour("WS-11")
@pytest.mark.parametrize(
    ("patch", "refused"),
    [
        ({"metadata": {"labels": {"tier": "burst"}}}, ""),
        ({"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}, ""),
        ({"spec": {"containers": [{"name": "other"}]}}, "image: Required value"),
        ({"spec": {"containers": [{"image": "x"}]}}, "failed to merge patch"),
        ("no object", "expected an object"),
    ],
)
def test_a_patch_must_apply_to_the_existing_workload(patch: Any, refused: str) -> None:
    obj = spread({"name": "a", "patch": patch})
    found = create(obj, Lookups(TEMPLATE))
    assert (found.obj is None) is bool(refused)
    assert found.message.startswith("spec.subsets[0].patch: Invalid value: " if refused else "")
    assert refused in found.message
    assert create(obj, Lookups(None)).obj, "unknown without the workload"
    assert create(obj, Lookups(TEMPLATE), old=obj).obj, "stored subsets are not validated again"


@pytest.mark.behaviour("WS-11")
def test_a_stranger_learns_nothing_about_the_workload_but_that_its_patch_is_unchecked() -> None:
    token = STRANGER.set("10.0.0.9")
    try:
        found = create(spread({"name": "a", "patch": {"spec": {"containers": [{"name": "other"}]}}}), Lookups(TEMPLATE))
    finally:
        STRANGER.reset(token)
    assert found.obj
    (warning,) = found.warnings
    assert warning.startswith("spec.subsets[0].patch: not checked against the workload: the caller is not known")


@pytest.mark.behaviour("WS-11")
def test_patches_beyond_the_limit_are_stored_with_a_warning() -> None:
    subsets = [{"name": f"s{n}", "maxReplicas": 1, "patch": {"metadata": {"labels": {"n": f"{n}"}}}} for n in range(52)]
    said = "not checked against the workload: at most 50 patches are checked at once"
    warnings = tuple(f"spec.subsets[{index}].patch: {said}" for index in (50, 51))
    assert create(spread(*subsets), Lookups(TEMPLATE)).warnings == warnings
    assert not create(spread(*subsets[:50]), Lookups(TEMPLATE)).warnings


@pytest.mark.behaviour("WS-11", "MGR-164")
def test_few_patches_are_tried_on_a_large_template() -> None:
    """Fifty patches for a template of a megabyte blocked the reviews of all Pods for seconds."""
    tried: list[Json] = []

    class Counting(Lookups):
        async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str]:
            tried.append(dict(template))
            return ()

    def template(size: int) -> Json:
        return {**TEMPLATE, "metadata": {"annotations": {"text": "x" * size}}}

    subsets = [{"name": f"s{n}", "maxReplicas": 1, "patch": {"metadata": {"labels": {"n": f"{n}"}}}} for n in range(9)]
    found = create(spread(*subsets), Counting(template(200_000)))
    assert len(tried) == 5
    assert len(found.warnings) == 4
    assert found.warnings[0].startswith("spec.subsets[5].patch: not checked against the workload: at most 5 patches")
    refused = create(spread(*subsets), Counting(template(300_000)))
    assert "failed to merge patch: Pod and patch total 300" in refused.message
    assert len(tried) == 5


@pytest.mark.behaviour("WS-11", "MGR-164")
def test_new_patches_are_compared_once_with_the_stored_ones() -> None:
    def patched(number: int) -> Json:
        return {"name": f"s{number}", "patch": {"spec": {"args": ["x"] * 100, "number": number}}}

    def steps(subsets: int) -> int:
        new, old = (
            WorkloadSpread.model_validate(spread(*map(patched, numbers)))
            for numbers in (range(subsets), range(subsets, 2 * subsets))
        )
        with cost.counted() as count:
            assert len(webhooks.new_patches(new, old)) == subsets
        return count[0]

    assert steps(40) < 5 * steps(10)


@pytest.mark.behaviour("WS-11")
def test_claims_of_the_workload_are_volumes_of_its_pods() -> None:
    workload = {"spec": {"template": TEMPLATE, "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}}
    found = template_of(workload)
    assert found is not None
    assert found["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.mark.behaviour("WS-11")
def test_unknown_pod_fields_get_a_warning() -> None:
    patch = {"spec": {"containers": [{"name": "main", "resources": {"limit": {"cpu": "1"}}}]}, "tolertions": []}
    found = create(spread({"name": "a", "maxReplicas": 1, "patch": patch}, B))
    assert found.obj
    assert any("limit: unknown field of a Pod" in text for text in found.warnings)
    assert any("tolertions: unknown field of a Pod" in text for text in found.warnings)


@pytest.mark.behaviour("WS-5")
def test_the_gate_blocks_only_spec_writes() -> None:
    obj = spread(A, B)
    refused = create(obj, enabled=False)
    assert refused.message.startswith("feature-gate WorkloadSpread is not enabled; ")
    assert refused.code == 403
    labeled = {**obj, "metadata": {**obj["metadata"], "labels": {"a": "b"}}}
    assert create(labeled, enabled=False, old=obj).obj
    assert create(spread(A), enabled=False, old=obj).code == 403


@pytest.mark.behaviour("WS-7", "WS-15")
def test_operators_list_further_kinds() -> None:
    target = {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "f"}
    files = stores()
    lookups = SpreadLookups(None, files, "kruise-system")
    assert "GroupKind is not permitted" in create(spread(A, B, target=target), lookups).message
    files(CONFIGURATION).replace([configuration('{"workloads":[{"Group":"example.com","Kind":"Fleet"}]}')])
    assert create(spread(A, B, target=target), lookups).obj
    files(CONFIGURATION).replace([configuration("no json")])
    refused = create(spread(A, B, target=target), lookups)
    assert refused.code == 500
    assert "spec.targetRef: Internal error: ConfigMap kruise-configuration" in refused.message
    assert create(spread(A, B), lookups).obj


def configuration(text: str) -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(name=names.CONFIGURATION_CONFIG_MAP, namespace="kruise-system"),
        data={names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY: text},
    )


@pytest.mark.behaviour("WS-15", "WS-16")
def test_a_list_is_case_insensitive_and_keeps_its_last_good_state() -> None:
    config_maps: Store[ConfigMap] = Store()
    custom = CustomWorkloads(config_maps, "kruise-system")
    assert custom().owners == KNOWN_OWNERS
    squad = '"subresources":[{"Group":"e.com","Kind":"Squad"}]'
    listed = f'{{"workloads":[{{"group":"e.com","KIND":"Fleet","ReplicasPath":"spec.size",{squad}}}]}}'
    config_maps.replace([configuration(listed)])
    assert custom().targets["e.com", "Fleet"].replicas_path == "spec.size"
    assert {("e.com", "Fleet"), ("e.com", "Squad")} < custom().owners
    config_maps.replace([configuration('{"workloads":[{"Group":"e.com"},]}')])
    assert ("e.com", "Fleet") in custom().targets
    config_maps.replace([])
    assert not custom().targets


@pytest.mark.behaviour("WS-15")
@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"workloads": {}}',
        '{"workloads": [1]}',
        '{"workloads": [{"Kind": ""}]}',
        '{"workloads": [{"Kind": "A", "replicasPath": 1}]}',
        '{"workloads": [{"Kind": "A", "subResources": "x"}]}',
        '{"workloads": [' + ",".join(['{"Kind": "A"}'] * 101) + "]}",
    ],
)
def test_an_unreadable_list_is_reported_with_the_position(text: str) -> None:
    with pytest.raises(WhitelistError, match=r"ConfigMap kruise-configuration, key WorkloadSpread_Watch_Custom"):
        parse_whitelist(text)


@pytest.mark.behaviour("WS-4")
def test_conversion_is_lossless_and_conditions_get_a_reason() -> None:
    condition = {"type": "Schedulable", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": ""}
    subset = {"name": "a", "replicas": 1, "missingReplicas": -1, "conditions": [condition], "creatingPods": {}}
    alpha = spread({"name": "a", "requiredNodeSelectorTerm": {}}, version=ALPHA)
    alpha["status"] = {"subsetStatuses": [subset], "versionedSubsetStatuses": {"v": [subset]}}
    beta = convert(alpha, BETA)
    assert beta["spec"]["subsets"] == [{"name": "a", "requiredNodeSelector": {}}]
    assert beta["status"]["versionedSubsetStatuses"]["v"][0]["conditions"][0]["reason"] == "Unknown"
    assert not structural.validate(WORKLOAD_SPREAD.hub.schema, beta)
    complete = {**condition, "reason": "Sufficient", "message": "", "observedGeneration": 3}
    newer = {**beta, "status": {"subsetStatuses": [{**subset, "conditions": [complete]}]}}
    assert convert(convert(newer, ALPHA), BETA) == newer


@pytest.mark.behaviour("WS-2", "WS-1")
def test_columns_show_workload_and_strategy() -> None:
    assert [one.name for one in WORKLOAD_SPREAD.hub.columns] == ["WorkloadName", "WorkloadKind", "Adaptive", "Age"]
    assert WORKLOAD_SPREAD.short_names == ("ws",)


@pytest.mark.behaviour("WS-72")
def test_the_gate_is_on_by_default() -> None:
    assert parse_gates("").enabled("WorkloadSpread")
