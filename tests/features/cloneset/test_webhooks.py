"""CloneSets as the webhooks see them: what is filled in, what is refused and with which words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from app.features.cloneset.validation import GATE
from app.features.cloneset.webhooks import WEBHOOKS, handlers, mutate
from app.kube.admission import Allowed, Denied, Handler, Patched
from app.kube.objects import ObjectMeta, OwnerReference, Pod
from tests.admission.writing import ALPHA, BETA
from tests.features.cloneset.writing import UID, Lookups, clone_set, refusal, review, rolling, write

Json = dict[str, Any]
BOTH = pytest.mark.parametrize("version", [ALPHA, BETA])
#: Where the fields of a roll-out are.
AT = {ALPHA: "spec.updateStrategy", BETA: "spec.updateStrategy.rollingUpdate"}


def refused(version: str, **spec: Any) -> str:
    return refusal(clone_set(version=version, **spec))


def template(**pod: Any) -> Json:
    spec = {"containers": [{"name": "main", "image": "nginx:1"}], **pod}
    return {"metadata": {"labels": {"app": "web"}}, "spec": spec}


# --- Defaults


@pytest.mark.behaviour("CS-13", "CS-14")
def test_v1alpha1_defaults() -> None:
    spec = write(clone_set(version=ALPHA, replicas=None)).obj["spec"]  # type: ignore[index]
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (1, 10)
    assert spec["updateStrategy"] == {"type": "ReCreate", "partition": 0, "maxUnavailable": "20%", "maxSurge": 0}
    in_place = write(clone_set(version=ALPHA, updateStrategy={"type": "InPlaceOnly"})).obj
    assert in_place is not None
    assert in_place["spec"]["updateStrategy"]["inPlaceUpdateStrategy"] == {}


@pytest.mark.behaviour("CS-15")
def test_v1beta1_defaults() -> None:
    spec = write(clone_set()).stored()["spec"]
    assert spec["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"podUpdatePolicy": "ReCreate", "partition": 0, "maxUnavailable": "20%", "maxSurge": 0},
    }
    assert write(clone_set(updateStrategy={"type": "OnDelete"})).stored()["spec"]["updateStrategy"] == {
        "type": "OnDelete"
    }


@pytest.mark.behaviour("CS-16", "CS-17")
def test_templates_are_defaulted_on_creation_and_change() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1.0001m"}}}}
    created = write(clone_set(volumeClaimTemplates=[claim])).stored()
    pod = created["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], pod["dnsPolicy"], pod["schedulerName"]) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    assert (pod["terminationGracePeriodSeconds"], pod["securityContext"]) == (30, {})
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
    stored_claim = created["spec"]["volumeClaimTemplates"][0]
    assert stored_claim["status"] == {"phase": "Pending"}
    assert stored_claim["spec"]["resources"]["requests"]["storage"] == "2m"
    # What OpenKruise stored without defaults (its gate was on) stays as it is while the template does.
    bare = clone_set(**{**created["spec"], "template": template()})
    assert write({**bare, "spec": {**bare["spec"], "replicas": 9}}, bare).stored()["spec"]["template"] == template()


@pytest.mark.behaviour("CS-16")
def test_a_gate_disables_template_defaults() -> None:
    plain = write(clone_set(), lookups=Lookups(gates={"TemplateNoDefaults"})).stored()
    assert "restartPolicy" not in plain["spec"]["template"]["spec"]


@BOTH
@pytest.mark.behaviour("CS-19")
def test_defaulting_twice_changes_nothing(version: str) -> None:
    obj = write(clone_set(version=version)).obj
    assert obj is not None
    assert mutate(Lookups(), review(obj, obj)) == Allowed()


@pytest.mark.behaviour("CS-8")
def test_a_v1alpha1_manifest_without_scale_strategy_keeps_claim_reuse() -> None:
    stored = write(clone_set(version=ALPHA, scaleStrategy={"disablePVCReuse": True})).obj
    assert stored is not None
    manifest = clone_set(version=ALPHA, replicas=5)
    assert write(manifest, stored).stored()["spec"]["scaleStrategy"]["enablePVCReuse"] is False
    said = clone_set(version=ALPHA, scaleStrategy={})
    assert write(said, stored).stored()["spec"]["scaleStrategy"]["enablePVCReuse"] is True


@pytest.mark.behaviour("CS-19", "CS-173")
def test_an_invalid_cloneset_is_a_bad_request() -> None:
    for bad in ({"apiVersion": "apps.kruise.io/v9", "kind": "CloneSet"}, {"apiVersion": BETA, "kind": "Deployment"}):
        decision = mutate(Lookups(), review({**bad, "metadata": {}}))
        assert isinstance(decision, Denied)
        assert decision.code == 400
    mistyped = mutate(Lookups(), review(clone_set(replicas="three")))
    assert isinstance(mistyped, Denied)
    assert "spec.replicas" in mistyped.message
    inner = mutate(Lookups(), review(clone_set(template=template(hostNetwork="yes"))))
    assert isinstance(inner, Denied)
    assert inner.message == "spec.template.spec.hostNetwork: expected boolean, found string"


# --- Refusals


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"selector": {}},
            "spec.selector: Invalid value: v1.LabelSelector{MatchLabels:map[string]string(nil), "
            "MatchExpressions:[]v1.LabelSelectorRequirement(nil)}: empty selector is invalid for cloneset",
        ),
        (
            {"selector": {"matchLabels": {"app": "other"}}},
            'spec.template.metadata.labels: Invalid value: map[string]string{"app":"web"}: `selector` does not match '
            "template `labels`",
        ),
        (
            {"template": template(restartPolicy="OnFailure")},
            'spec.template.spec.restartPolicy: Unsupported value: "OnFailure": supported values: "Always"',
        ),
        (
            {"template": template(activeDeadlineSeconds=5)},
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in cloneset is not Supported",
        ),
        ({"template": template(containers=[])}, "spec.template.spec.containers: Required value"),
        (
            {"scaleStrategy": {"podsToDelete": ["a", "b", "a", "b"]}},
            'spec.scaleStrategy.podsToDelete: Invalid value: []string{"a", "b", "a", "b"}: duplicated items [a b]',
        ),
    ],
)
@BOTH
@pytest.mark.behaviour("CS-21", "CS-22", "CS-23", "CS-24", "CS-25", "CS-26", "CS-27")
def test_both_versions_refuse_invalid_specs(version: str, spec: Json, message: str) -> None:
    assert refused(version, **spec) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"partition": -1}, "{at}.partition: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"partition": "5"},
            '{at}.partition: Invalid value: "5": failed GetScaledValueFromIntOrPercent for partition: invalid type: '
            "string is not a percentage",
        ),
        ({"partition": "33.3%"}, ""),
        ({"partition": "150%", "maxUnavailable": "120%"}, ""),
        ({"partition": "-1%"}, '{at}.partition: Invalid value: "-1%": must be greater than or equal to 0'),
        (
            {"maxUnavailable": "x"},
            '[{at}.maxUnavailable: Invalid value: "x": failed GetScaledValueFromIntOrPercent for maxUnavailable: '
            'invalid type: string is not a percentage, {at}.maxUnavailable: Invalid value: "x": must be at least 1 '
            "if maxSurge is less than 1; otherwise no Pod could be updated]",
        ),
        (
            {"maxUnavailable": "x", "maxSurge": 1},
            '{at}.maxUnavailable: Invalid value: "x": failed GetScaledValueFromIntOrPercent for maxUnavailable: '
            "invalid type: string is not a percentage",
        ),
        (
            {"partition": "5", "maxUnavailable": "0%"},
            '[{at}.partition: Invalid value: "5": failed GetScaledValueFromIntOrPercent for partition: invalid type: '
            'string is not a percentage, {at}.maxUnavailable: Invalid value: "0%": must be at least 1 if maxSurge is '
            "less than 1; otherwise no Pod could be updated]",
        ),
        ({"maxUnavailable": 0, "maxSurge": 1}, ""),
        (
            {"maxUnavailable": 0, "maxSurge": 0},
            '{at}.maxUnavailable: Invalid value: "0": must be at least 1 if maxSurge is less than 1; otherwise no '
            "Pod could be updated",
        ),
        ({"maxUnavailable": 1, "maxSurge": -1}, "{at}.maxSurge: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"priorityStrategy": {"orderPriority": [{"orderedKey": ""}]}},
            "{at}.priorityStrategy: Required value: order key can not be empty",
        ),
        (
            {"scatterStrategy": [{"key": "k", "value": "v"}, {"key": "k", "value": "v"}]},
            "{at}.scatterStrategy: Required value: duplicated key=k value=v",
        ),
    ],
)
@BOTH
@pytest.mark.behaviour("CS-31", "CS-32", "CS-34", "CS-35", "CS-36")
def test_rollout_fields(version: str, fields: Json, message: str) -> None:
    assert refused(version, updateStrategy=rolling(version, **fields)) == message.format(at=AT[version])


@pytest.mark.behaviour("CS-29", "CS-30", "CS-33")
def test_types_and_policies() -> None:
    assert refused(ALPHA, updateStrategy={"type": "Bad"}) == (
        "spec.updateStrategy.type: Invalid value: \"Bad\": must be 'ReCreate', InPlaceIfPossible or 'InPlaceOnly'"
    )
    assert refused(BETA, updateStrategy={"type": "Bad"}) == (
        "spec.updateStrategy.type: Invalid value: \"Bad\": must be 'RollingUpdate' or 'OnDelete'"
    )
    assert refused(BETA, updateStrategy=rolling(policy="Bad")) == (
        'spec.updateStrategy.rollingUpdate.podUpdatePolicy: Invalid value: "Bad": '
        "must be 'ReCreate', 'InPlaceIfPossible' or 'InPlaceOnly'"
    )
    assert refused(ALPHA, updateStrategy=rolling(ALPHA, policy="InPlaceOnly", maxSurge="10%")) == (
        'spec.updateStrategy.maxSurge: Invalid value: "10%": can not use maxSurge with strategy type InPlaceOnly'
    )
    assert refused(BETA, updateStrategy=rolling(policy="InPlaceOnly", maxSurge=1)) == (
        'spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "1": can not use maxSurge with podUpdatePolicy '
        "InPlaceOnly"
    )


@pytest.mark.behaviour("CS-29")
def test_on_delete_is_allowed_in_v1alpha1() -> None:
    assert write(clone_set(version=ALPHA, updateStrategy={"type": "OnDelete"})).stored()["spec"]["updateStrategy"] == {
        "type": "OnDelete"
    }
    kept = write(clone_set(version=ALPHA, updateStrategy={"type": "OnDelete", "paused": True}))
    assert kept.stored()["spec"]["updateStrategy"]["rollingUpdate"] == {
        "paused": True,
        "partition": 0,
        "maxUnavailable": "20%",
    }


@pytest.mark.parametrize(
    ("deadline", "ready", "message"),
    [
        (60, 0, ""),
        (2147483647, 9, ""),
        (5, 5, "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"),
        (
            -1,
            0,
            "[spec.progressDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0, "
            "spec.progressDeadlineSeconds: Invalid value: -1: must be greater than minReadySeconds]",
        ),
    ],
)
@pytest.mark.behaviour("CS-37")
def test_the_progress_deadline_exceeds_min_ready_seconds(deadline: int, ready: int, message: str) -> None:
    spec = {"progressDeadlineSeconds": deadline, "minReadySeconds": ready}
    assert refused(ALPHA, **spec) == message
    newer = write(clone_set(**spec))
    assert newer.obj is not None
    assert bool(newer.warnings) is bool(message)


@pytest.mark.behaviour("CS-38")
def test_predownload_settings() -> None:
    def said(**in_place: Any) -> str:
        return refused(BETA, updateStrategy=rolling(inPlaceUpdateStrategy=in_place))

    at = "spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy"
    assert said(imagePreDownloadParallelism="8") == said(imagePreDownloadTimeoutSeconds=5) == ""
    assert said(imagePreDownloadParallelism="50%") == (
        f'{at}.imagePreDownloadParallelism: Invalid value: "50%": must be a non-negative number'
    )
    assert said(imagePreDownloadMinUpdatedReadyPods=-1) == (
        f"{at}.imagePreDownloadMinUpdatedReadyPods: Invalid value: -1: must be greater than or equal to 0"
    )


@pytest.mark.behaviour("CS-24")
def test_claims_can_be_mounted_and_the_cluster_validates_the_template() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    mounting = template()
    mounting["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    mounting["spec"]["volumes"] = [{"name": "own", "emptyDir": {}}]
    lookups = Lookups(template=['spec.template.spec.hostname: Invalid value: "A": a lowercase …'])
    message = refusal(clone_set(template=mounting, volumeClaimTemplates=[claim]), lookups=lookups)
    assert message == 'spec.template.spec.hostname: Invalid value: "A": a lowercase …'
    volumes = lookups.templates[0]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes] == ["data", "own"]
    # A template that stays was judged when it came.
    obj = write(clone_set(template=mounting, volumeClaimTemplates=[claim])).obj
    assert obj is not None
    assert refusal({**obj, "spec": {**obj["spec"], "replicas": 7}}, obj, lookups) == ""
    assert len(lookups.templates) == 1


# --- Pods to delete


def owned_pod(name: str, uid: str = UID, *, deleting: bool = False) -> Pod:
    reference = OwnerReference(api_version=ALPHA, kind="CloneSet", name="cs", uid=uid, controller=True)
    gone = datetime(2026, 1, 1, tzinfo=UTC) if deleting else None
    return Pod(metadata=ObjectMeta(name=name, namespace="shop", owner_references=(reference,), deletion_timestamp=gone))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("mine", ""),
        ("nobody", 'find pod nobody failed: Pod "nobody" not found'),
        ("going", "find pod going already terminating"),
        ("other", "find pod other owner is not this CloneSet"),
    ],
)
@pytest.mark.behaviour("CS-28")
def test_a_newly_named_pod_must_belong_to_the_set(name: str, problem: str) -> None:
    pods = [owned_pod("mine"), owned_pod("going", deleting=True), owned_pod("other", uid="someone")]
    wanted = f'spec.scaleStrategy.podsToDelete: Invalid value: "{name}": {problem}' if problem else ""
    for version in (ALPHA, BETA):
        before = write(clone_set(version=version)).obj
        assert before is not None
        scale = {**before["spec"]["scaleStrategy"], "podsToDelete": [name]}
        after = {**before, "spec": {**before["spec"], "scaleStrategy": scale}}
        written = write(after, before, Lookups(pods))
        if version == ALPHA:
            assert written.message == wanted
        else:
            assert written.warnings == ((wanted,) if wanted else ())
        # Once named it is not asked about again.
        assert refusal(after, after, Lookups()) == ""


@pytest.mark.behaviour("CS-62")
def test_names_can_be_removed_despite_other_errors() -> None:
    stored = write(clone_set(scaleStrategy={"enablePVCReuse": False, "podsToDelete": ["a", "b"]})).stored()
    stored["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 5
    cleaned = {**stored, "spec": {**stored["spec"], "scaleStrategy": {"enablePVCReuse": False}}}
    assert refusal(cleaned, stored) == ""
    assert "activeDeadlineSeconds" in refusal({**cleaned, "spec": {**cleaned["spec"], "replicas": 9}}, stored)


@BOTH
@pytest.mark.behaviour("CS-27")
@pytest.mark.parametrize("listed", [["a", "a"], ["b", "a", "b"]])
def test_a_known_name_cannot_be_listed_twice(version: str, listed: list[str]) -> None:
    defaulted = write(clone_set(version=version)).obj
    assert defaulted is not None

    def naming(*names: str) -> Json:
        scale = {**defaulted["spec"].get("scaleStrategy", {}), "podsToDelete": list(names)}
        return {**defaulted, "spec": {**defaulted["spec"], "scaleStrategy": scale}}

    assert f"duplicated items [{listed[-1]}]" in refusal(naming(*listed), naming("a", "b"))
    assert refusal(naming("b"), naming("a", "b")) == ""


# --- Updates


@BOTH
@pytest.mark.behaviour("CS-39")
def test_only_the_selector_is_immutable(version: str) -> None:
    before = write(clone_set(version=version)).obj
    assert before is not None
    labels = {"app": "web", "tier": "front"}
    relabelled = {**template(), "metadata": {"labels": labels}}
    after = clone_set(version=version, selector={"matchLabels": labels}, template=relabelled)
    assert refusal(after, before) == (
        "spec: Forbidden: updates to cloneset spec for fields other than 'replicas', 'template', 'lifecycle', "
        "'scaleStrategy', 'updateStrategy', 'minReadySeconds', 'progressDeadlineSeconds', 'volumeClaimTemplates' and "
        "'revisionHistoryLimit' are forbidden"
    )
    changed = clone_set(version=version, replicas=9, template=relabelled, minReadySeconds=3, revisionHistoryLimit=2)
    assert refusal(changed, before) == ""


@BOTH
@pytest.mark.behaviour("CS-40")
def test_in_place_only_allows_image_changes(version: str) -> None:
    strategy = rolling(version, policy="InPlaceOnly")
    before = write(clone_set(version=version, updateStrategy=strategy)).obj
    assert before is not None

    def changed(**container: Any) -> str:
        new = template(containers=[{"name": "main", "image": "nginx:2", **container}])
        new["metadata"]["annotations"] = {"any": "thing"}
        return refusal(clone_set(version=version, updateStrategy=strategy, template=new), before)

    assert changed() == ""
    assert changed(env=[{"name": "A", "value": "1"}]) == (
        "spec: Forbidden: only allowed to update images in spec for InPlaceOnly, but found add /containers/0/env"
    )


@pytest.mark.behaviour("CS-42")
def test_a_deleted_object_is_not_validated() -> None:
    bad = clone_set(template=template(activeDeadlineSeconds=5), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert write(bad, bad).message == ""


def test_an_object_that_claims_to_be_deleted_is_validated() -> None:
    bad = clone_set(template=template(activeDeadlineSeconds=5), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert write(bad).message


# --- Stricter


QUESTIONABLE: Json = {
    "minReadySeconds": -1,
    "revisionHistoryLimit": -1,
    "scaleStrategy": {"maxUnavailable": "-1%", "enablePVCReuse": False},
    "lifecycle": {"preDelete": {"finalizersHandler": ["a b"], "labelsHandler": {"k": "v v"}}},
}


@pytest.mark.behaviour("CS-41")
def test_an_obvious_mistake_is_warned_of_and_refused_with_the_gate() -> None:
    told = write(clone_set(**QUESTIONABLE))
    assert told.obj is not None
    assert [warning.partition(":")[0] for warning in told.warnings] == [
        "spec.minReadySeconds",
        "spec.revisionHistoryLimit",
        "spec.scaleStrategy.maxUnavailable",
        "spec.lifecycle.preDelete.finalizersHandler[0]",
        "spec.lifecycle.preDelete.labelsHandler[k]",
    ]
    strict = Lookups(gates={GATE})
    assert refusal(clone_set(**QUESTIONABLE), lookups=strict).count("Invalid value") == 5
    # What was admitted before stays editable.
    assert refusal({**told.obj, "spec": {**told.obj["spec"], "replicas": 9}}, told.obj, strict) == ""


@pytest.mark.behaviour("CS-41")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"updateStrategy": rolling(partition="150%")},
            'spec.updateStrategy.rollingUpdate.partition: Invalid value: "150%": is more than 100%, which has the same '
            "effect as 100%: all Pods stay at the old revision",
        ),
        (
            {"lifecycle": {"preDelete": {}}},
            "spec.lifecycle.preDelete: Required value: has neither labelsHandler nor finalizersHandler, so it holds "
            "no Pod",
        ),
    ],
)
def test_a_field_without_effect_is_warned_of(fields: Json, said: str) -> None:
    assert write(clone_set(**fields)).warnings == (said,)
    assert write(clone_set(updateStrategy=rolling(partition="100%"))).warnings == ()


@pytest.mark.behaviour("CS-41")
def test_an_empty_claim_template_is_refused() -> None:
    bare = [{"metadata": {"name": "data"}}]
    assert refused(BETA, volumeClaimTemplates=bare) == (
        "spec.volumeClaimTemplates[0].spec: Required value: a claim needs accessModes and resources.requests.storage"
    )


@pytest.mark.behaviour("CS-30")
def test_a_misplaced_policy_is_refused_with_its_right_place() -> None:
    assert refused(BETA, updateStrategy={"type": "InPlaceIfPossible"}) == (
        "spec.updateStrategy.type: Invalid value: \"InPlaceIfPossible\": must be 'RollingUpdate' or 'OnDelete'; "
        "InPlaceIfPossible is a policy: set updateStrategy.rollingUpdate.podUpdatePolicy: InPlaceIfPossible"
    )


@pytest.mark.behaviour("CS-41")
def test_a_limit_that_blocks_all_scaling_is_refused() -> None:
    assert refused(BETA, scaleStrategy={"maxUnavailable": "x"}) == (
        'spec.scaleStrategy.maxUnavailable: Invalid value: "x": failed GetScaledValueFromIntOrPercent for '
        "maxUnavailable: invalid type: string is not a percentage"
    )


@pytest.mark.behaviour("CS-143")
def test_a_name_too_long_for_the_hash_is_warned_of() -> None:
    assert write(clone_set("a" * 52)).warnings == ()
    (warning,) = write(clone_set("a" * 53)).warnings
    assert warning.startswith("metadata.name: Invalid value")
    assert "at most 52 characters" in warning


@pytest.mark.behaviour("CS-20")
def test_names_that_no_api_server_stores() -> None:
    assert refusal(clone_set("Web_1")).startswith('metadata.name: Invalid value: "Web_1": a lowercase RFC 1123')


@pytest.mark.behaviour("CS-43", "CS-173")
def test_the_webhooks_are_called_for_both_versions() -> None:
    mutating, validating = WEBHOOKS
    assert (mutating.name, mutating.path) == ("mcloneset.kb.io", "/mutate-apps-kruise-io-cloneset")
    assert (validating.name, validating.path) == ("vcloneset.kb.io", "/validate-apps-kruise-io-cloneset")
    for webhook in WEBHOOKS:
        assert webhook.failure_policy == "Fail"
        (rule,) = webhook.rules
        assert (rule.versions, rule.resources) == (("v1alpha1", "v1beta1"), ("clonesets",))
        asked = review(clone_set())
        assert rule.matches(asked)
        assert not rule.matches(msgspec.structs.replace(asked, subresource="scale"))
    assert all(isinstance(handler, Handler) for handler in handlers(Lookups()))
    assert isinstance(mutate(Lookups(), review(clone_set())), Patched)
