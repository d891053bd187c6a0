"""Every write that was recorded with OpenKruise has the same result here: verdict, message, stored versions.

SidecarSets, StatefulSets and image jobs have separate tests because of their differences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from app.api.conversion import convert
from app.api.kind import KindDefinition
from app.features.advancedcronjob import webhooks as advancedcronjob
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.broadcastjob import webhooks as broadcastjob
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.cloneset import webhooks as cloneset
from app.features.cloneset.kind import CLONE_SET
from app.features.daemonset import webhooks as daemonset
from app.features.daemonset.kind import DAEMON_SET
from app.features.ephemeraljob import webhooks as ephemeraljob
from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.persistentpodstate import webhooks as persistentpodstate
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.pod_admission import STATES
from app.features.podunavailablebudget import webhooks as podunavailablebudget
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.resourcedistribution import webhooks as resourcedistribution
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.uniteddeployment import webhooks as uniteddeployment
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.workloadspread import webhooks as workloadspread
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.framework.live import LiveObjects
from app.framework.watched import CONFIGURATION, Stores
from app.kube.admission import Allowed, Handler, Patched
from app.kube.patches import apply, merge_patch
from app.pods.template_check import TemplateLookups
from tests.admission.recorded import RECORDED_LENGTH, cases, comparable, hold_against
from tests.admission.writing import review_of, written
from tests.features.cloneset.writing import Lookups as CloneSetLookups
from tests.features.podunavailablebudget.writing import Lookups as BudgetLookups
from tests.kit.features import decided

Json = dict[str, Any]
TEMPLATES = TemplateLookups()


@dataclass(frozen=True)
class Recorded:
    """The recordings of a kind. ``words``: number of characters of a refusal that must be equal; ``exact``: nothing may
    follow them; ``adapted``: returns a case without deliberate differences; ``of_the_api_server``: prefix of the API
    server's own refusals."""

    kind: KindDefinition
    handlers: tuple[Handler, ...]
    rules: pytest.MarkDecorator
    words: int = RECORDED_LENGTH
    exact: bool = False
    adapted: Callable[[Json], Json] = lambda case: case
    of_the_api_server: tuple[str, ...] = ()

    @property
    def cases(self) -> list[Json]:
        return cases(self.kind.kind.lower())


def _restarting(spec: Json) -> bool:
    pod = spec["template"].get("jobTemplate", {}).get("spec", {}).get("template", {}).get("spec", {})
    return pod.get("restartPolicy") == "Always"


def _with_possible_weights(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_possible_weights(item) for item in value]
    if isinstance(value, dict):
        return {key: 10 if key == "weight" else _with_possible_weights(item) for key, item in value.items()}
    return value


def _before_its_controller(case: Json) -> Json:
    """Later reads of an EphemeralJob include changes by OpenKruise's controller."""
    return {key: value for key, value in case.items() if key != "v1alpha1"}


OF_CLONE_SETS = pytest.mark.behaviour(
    "CS-5", "CS-6", "CS-7", "CS-8", "CS-11", "CS-12", "CS-13", "CS-14", "CS-15", "CS-16", "CS-17", "CS-22", "CS-23",
    "CS-24", "CS-25", "CS-26", "CS-27", "CS-28", "CS-29", "CS-30", "CS-31", "CS-35", "CS-36", "CS-37", "CS-39",
)  # fmt: skip
KINDS = [
    Recorded(
        ADVANCED_CRON_JOB,
        advancedcronjob.handlers(TEMPLATES, lambda: datetime(2026, 11, 22, tzinfo=UTC)),
        pytest.mark.behaviour("ACJ-1", "ACJ-2", "ACJ-3", "ACJ-4", "ACJ-5", "ACJ-25", "U-55"),
        # The recorder omitted times of templates only in kinds of workloads.
        adapted=comparable,
        of_the_api_server=("AdvancedCronJob.",),
    ),
    Recorded(BROADCAST_JOB, broadcastjob.handlers(TEMPLATES), pytest.mark.behaviour("BJ-2", "BJ-3", "BJ-4")),
    Recorded(
        CLONE_SET,
        cloneset.handlers(CloneSetLookups()),
        OF_CLONE_SETS,
        exact=True,
        of_the_api_server=("CloneSet.",),
    ),
    Recorded(
        DAEMON_SET,
        daemonset.handlers(TEMPLATES),
        pytest.mark.behaviour(
            "DS-1", "DS-2", "DS-4", "DS-5", "DS-6", "DS-7", "DS-8", "DS-9", "DS-10", "DS-11", "DS-15"
        ),
        of_the_api_server=("DaemonSet.",),
    ),
    Recorded(
        EPHEMERAL_JOB,
        ephemeraljob.handlers(),
        pytest.mark.behaviour("EJ-1", "EJ-2"),
        adapted=_before_its_controller,
        of_the_api_server=("EphemeralJob.",),
    ),
    Recorded(
        PERSISTENT_POD_STATE,
        persistentpodstate.handlers(LiveObjects(None, Stores((STATES, CONFIGURATION))), "kruise-system"),
        pytest.mark.behaviour("PPS-1", "PPS-2", "PPS-3", "PPS-4", "PPS-5", "PPS-6"),
        adapted=_with_possible_weights,
    ),
    Recorded(
        POD_UNAVAILABLE_BUDGET,
        podunavailablebudget.handlers(BudgetLookups()),
        pytest.mark.behaviour("PUB-10", "PUB-11", "PUB-12", "PUB-13", "PUB-14", "PUB-15", "PUB-18"),
        exact=True,
    ),
    Recorded(
        RESOURCE_DISTRIBUTION,
        resourcedistribution.handlers(resourcedistribution.structural_error, enabled=True),
        pytest.mark.behaviour("RD-1", "RD-12", "RD-13", "RD-14", "RD-16"),
    ),
    Recorded(
        UNITED_DEPLOYMENT,
        uniteddeployment.handlers(TEMPLATES),
        pytest.mark.behaviour("UD-4", "UD-5", "UD-6", "UD-8", "UD-12", "UD-13", "UD-14", "UD-15", "UD-16"),
        # Then follow the errors that only we report (UD-18), and numbers instead of addresses.
        words=140,
    ),
    Recorded(
        WORKLOAD_SPREAD,
        workloadspread.handlers(
            workloadspread.SpreadLookups(None, Stores((workloadspread.SPREADS, CONFIGURATION)), "kruise-system"),
            enabled=True,
        ),
        pytest.mark.behaviour("WS-1", "WS-3", "WS-4", "WS-6", "WS-7", "WS-8", "WS-9", "WS-12", "WS-14", "WS-30"),
    ),
]
#: The API server's messages for a negative scale or a missing selector, which our schema refuses.
OF_THE_API_SERVER = ("should be a non-negative integer", "spec.selector in body must be of type object")


@pytest.mark.parametrize(
    ("recorded", "case"),
    [
        pytest.param(one, case, id=f"{one.kind.kind} {case['manifest']['metadata']['name']}", marks=one.rules)
        for one in KINDS
        for case in one.cases
        if not (one.kind is ADVANCED_CRON_JOB and _restarting(case["manifest"]["spec"]))
    ],
)
def test_an_object_is_validated_and_stored_as_in_openkruise(recorded: Recorded, case: Json) -> None:
    kind, handlers = recorded.kind, recorded.handlers
    case = recorded.adapted(case)
    update = case.get("update")

    def is_the_api_servers(message: str) -> bool:
        return message.startswith(recorded.of_the_api_server) if recorded.of_the_api_server else False

    created = written(kind, handlers, case["manifest"])
    if is_the_api_servers(case["message"]) or any(said in case["message"] for said in OF_THE_API_SERVER):
        assert created.obj is None
        return
    if update and (
        is_the_api_servers(update["message"])
        or any(said in update["message"] for said in OF_THE_API_SERVER)
        or (kind is ADVANCED_CRON_JOB and _restarting(update["manifest"]))
    ):
        assert written(kind, handlers, {**case["manifest"], "spec": update["manifest"]}, created.obj).obj is None
        case = {**case, "update": None}
    hold_against(kind, handlers, case, words=recorded.words, exact=recorded.exact)


@pytest.mark.behaviour("ACJ-2", "BJ-2", "CS-19", "DS-4")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
@pytest.mark.parametrize("name", ["AdvancedCronJob", "BroadcastJob", "CloneSet", "DaemonSet"])
def test_taking_over_an_object_that_openkruise_stored_changes_nothing(name: str, version: str) -> None:
    (recorded,) = (one for one in KINDS if one.kind.kind == name)
    (mutating,) = (one for one in recorded.handlers if one.webhook.mutating)
    stored = [case[version] for case in recorded.cases if case["ok"] and version in case]
    assert len(stored) > 30
    for obj in stored:
        # The recorder omitted the phase of claims.
        for claim in obj["spec"].get("volumeClaimTemplates") or ():
            claim["status"] = {"phase": "Pending"}
        decision = decided(mutating.decide(review_of(recorded.kind, obj, obj)))
        if isinstance(decision, Patched):
            # v1alpha1 does not show an empty stored block; with it, both are equal.
            assert (name, version) == ("CloneSet", "v1alpha1")
            after, hub = apply(decision.operations, obj), "apps.kruise.io/v1beta1"
            assert comparable(convert(after, hub)) == comparable(convert(obj, hub))
        else:
            assert decision == Allowed()


@pytest.mark.behaviour("CS-19")
@pytest.mark.parametrize("name", ["AdvancedCronJob", "BroadcastJob", "CloneSet", "DaemonSet", "UnitedDeployment"])
def test_a_recorded_manifest_applied_again_keeps_the_stored_spec(name: str) -> None:
    """To the byte, so that its generation stays: ``kubectl apply`` merges the manifest, which replaces lists."""
    (recorded,) = (one for one in KINDS if one.kind.kind == name)
    for case in (one for one in recorded.cases if one["ok"]):
        manifest = case["manifest"]
        stored = case[manifest["apiVersion"].rpartition("/")[2]]
        for version in ("v1alpha1", "v1beta1"):
            for claim in case[version]["spec"].get("volumeClaimTemplates") or ():
                claim["status"] = {"phase": "Pending"}
        again = written(recorded.kind, recorded.handlers, merge_patch(stored, manifest), stored)
        assert again.stored()["spec"] == case["v1beta1"]["spec"]


def of(kind: KindDefinition) -> Recorded:
    return next(one for one in KINDS if one.kind is kind)


RESTARTING = [one for one in of(ADVANCED_CRON_JOB).cases if _restarting(one["manifest"]["spec"])]
IMPOSSIBLE = [
    one
    for one in of(PERSISTENT_POD_STATE).cases
    if one["ok"]
    and any(not 1 <= term["weight"] <= 100 for term in one["manifest"]["spec"].get("preferredPersistentTopology") or ())
]


@pytest.mark.parametrize(
    ("recorded", "case", "message"),
    [
        *(
            pytest.param(of(ADVANCED_CRON_JOB), one, "pod restartPolicy can only be Never or OnFailure")
            for one in RESTARTING
        ),
        *(
            pytest.param(
                of(PERSISTENT_POD_STATE),
                one,
                "spec.preferredPersistentTopology[0].weight: Invalid value",
                marks=pytest.mark.behaviour("PPS-40"),
            )
            for one in IMPOSSIBLE
        ),
    ],
)
def test_values_that_an_api_server_would_reject_later_are_refused(recorded: Recorded, case: Json, message: str) -> None:
    refused = written(recorded.kind, recorded.handlers, case["manifest"])
    assert refused.obj is None
    assert message in refused.message
