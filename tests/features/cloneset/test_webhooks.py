"""The webhooks of CloneSets, beyond the recorded answers: defaults, errors and warnings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.features.cloneset.validation import GATE
from app.features.cloneset.webhooks import WEBHOOKS, mutate
from app.kube.admission import Denied
from app.kube.objects import Pod
from tests.admission.writing import ALPHA, BETA
from tests.features.cloneset.writing import UID, Lookups, clone_set, refusal, review, rolling, write
from tests.kit import objects

Json = dict[str, Any]
BOTH = pytest.mark.parametrize("version", [ALPHA, BETA])
#: Path of the rollout fields.
AT = {ALPHA: "spec.updateStrategy", BETA: "spec.updateStrategy.rollingUpdate"}
NEGATIVE = "must be greater than or equal to 0"
NO_UPDATE = "must be at least 1 if maxSurge is less than 1; otherwise no Pod could be updated"


def not_scaled(field: str) -> str:
    return f"failed GetScaledValueFromIntOrPercent for {field}: invalid type: string is not a percentage"


def refused(version: str, **spec: Any) -> str:
    return refusal(clone_set(version=version, **spec))


def template(**pod: Any) -> Json:
    spec = {"containers": [{"name": "main", "image": "nginx:1"}], **pod}
    return {"metadata": {"labels": {"app": "web"}}, "spec": spec}


def created(version: str = BETA, **spec: Any) -> Json:
    """Return the CloneSet after its creation in that version."""
    obj = write(clone_set(version=version, **spec)).obj
    assert obj is not None
    return obj


def changed(obj: Json, **spec: Any) -> Json:
    return {**obj, "spec": {**obj["spec"], **spec}}


# --- Defaults


@BOTH
@pytest.mark.behaviour("CS-13", "CS-15")
def test_one_replica_is_the_default_and_on_delete_gets_no_rollout(version: str) -> None:
    assert created(version, replicas=None)["spec"]["replicas"] == 1
    assert created(updateStrategy={"type": "OnDelete"})["spec"]["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.behaviour("CS-16", "CS-17")
def test_templates_are_defaulted_on_creation_and_change() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1.0001m"}}}}
    stored = created(volumeClaimTemplates=[claim])
    assert stored["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    stored_claim = stored["spec"]["volumeClaimTemplates"][0]
    assert stored_claim["status"] == {"phase": "Pending"}
    assert stored_claim["spec"]["resources"]["requests"]["storage"] == "2m"
    # OpenKruise stored a template without defaults while its gate was on: it is kept until it changes.
    bare = clone_set(**{**stored["spec"], "template": template()})
    assert write(changed(bare, replicas=9), bare).stored()["spec"]["template"] == template()


@pytest.mark.behaviour("CS-16")
def test_a_gate_disables_template_defaults() -> None:
    plain = write(clone_set(), lookups=Lookups(gates={"TemplateNoDefaults"})).stored()
    assert "restartPolicy" not in plain["spec"]["template"]["spec"]


@pytest.mark.behaviour("CS-8")
@pytest.mark.parametrize(("spec", "reuse"), [({"replicas": 5}, False), ({"scaleStrategy": {}}, True)])
def test_a_v1alpha1_manifest_without_scale_strategy_keeps_claim_reuse(spec: Json, reuse: bool) -> None:
    before = created(ALPHA, scaleStrategy={"disablePVCReuse": True})
    after = write(clone_set(version=ALPHA, **spec), before).stored()
    assert after["spec"]["scaleStrategy"]["enablePVCReuse"] is reuse


@pytest.mark.behaviour("CS-19", "CS-173")
@pytest.mark.parametrize(("bad", "message"), [
    ({"apiVersion": "apps.kruise.io/v9", "kind": "CloneSet", "metadata": {}}, ""),
    ({"apiVersion": BETA, "kind": "Deployment", "metadata": {}}, ""),
    (clone_set(replicas="three"), "spec.replicas"),
    (clone_set(template=template(hostNetwork="yes")), "spec.template.spec.hostNetwork: expected boolean, found string"),
])  # fmt: skip
def test_an_invalid_cloneset_is_a_bad_request(bad: Json, message: str) -> None:
    decision = mutate(Lookups(), review(bad))
    assert isinstance(decision, Denied)
    assert decision.code == 400
    assert message in decision.message


# --- Errors


@pytest.mark.parametrize(("spec", "message"), [
    ({"replicas": -1}, f"spec.replicas: Invalid value: -1: {NEGATIVE}"),
    ({"selector": {}},
     "spec.selector: Invalid value: v1.LabelSelector{MatchLabels:map[string]string(nil), "
     "MatchExpressions:[]v1.LabelSelectorRequirement(nil)}: empty selector is invalid for cloneset"),
    ({"scaleStrategy": {"podsToDelete": ["a", "b", "a", "b"]}},
     'spec.scaleStrategy.podsToDelete: Invalid value: []string{"a", "b", "a", "b"}: duplicated items [a b]'),
])  # fmt: skip
@BOTH
@pytest.mark.behaviour("CS-21", "CS-22", "CS-27")
def test_both_versions_refuse_invalid_specs(version: str, spec: Json, message: str) -> None:
    assert refused(version, **spec) == message


@pytest.mark.parametrize(("fields", "message"), [
    ({"partition": "5"}, f'AT.partition: Invalid value: "5": {not_scaled("partition")}'),
    ({"partition": "33.3%", "maxSurge": ".5%", "maxUnavailable": "5.%"}, ""),
    ({"partition": "150%", "maxUnavailable": "120%"}, ""),
    ({"partition": "-1%"}, f'AT.partition: Invalid value: "-1%": {NEGATIVE}'),
    ({"maxUnavailable": "x"},
     f'[AT.maxUnavailable: Invalid value: "x": {not_scaled("maxUnavailable")}, '
     f'AT.maxUnavailable: Invalid value: "x": {NO_UPDATE}]'),
    ({"maxUnavailable": "x", "maxSurge": 1}, f'AT.maxUnavailable: Invalid value: "x": {not_scaled("maxUnavailable")}'),
    ({"partition": "5", "maxUnavailable": "0%"},
     f'[AT.partition: Invalid value: "5": {not_scaled("partition")}, '
     f'AT.maxUnavailable: Invalid value: "0%": {NO_UPDATE}]'),
    ({"maxUnavailable": 0, "maxSurge": 1}, ""),
    ({"maxUnavailable": 0, "maxSurge": 0}, f'AT.maxUnavailable: Invalid value: "0": {NO_UPDATE}'),
    ({"maxUnavailable": 1, "maxSurge": -1}, f"AT.maxSurge: Invalid value: -1: {NEGATIVE}"),
    ({"scatterStrategy": [{"key": "k", "value": "v"}, {"key": "k", "value": "v"}]},
     "AT.scatterStrategy: Required value: duplicated key=k value=v"),
])  # fmt: skip
@BOTH
@pytest.mark.behaviour("CS-31", "CS-32", "CS-34", "CS-35", "CS-36")
def test_invalid_rollout_fields_are_refused(version: str, fields: Json, message: str) -> None:
    assert refused(version, updateStrategy=rolling(version, **fields)) == message.replace("AT", AT[version])


@pytest.mark.parametrize(("version", "strategy", "message"), [
    (BETA, {"type": "Bad"}, ".type: Invalid value: \"Bad\": must be 'RollingUpdate' or 'OnDelete'"),
    (BETA, {"type": "InPlaceIfPossible"},
     ".type: Invalid value: \"InPlaceIfPossible\": must be 'RollingUpdate' or 'OnDelete'; "
     "InPlaceIfPossible is a policy: set updateStrategy.rollingUpdate.podUpdatePolicy: InPlaceIfPossible"),
    (ALPHA, rolling(ALPHA, policy="InPlaceOnly", maxSurge="10%"),
     '.maxSurge: Invalid value: "10%": can not use maxSurge with strategy type InPlaceOnly'),
    (BETA, rolling(policy="InPlaceOnly", maxSurge=1),
     '.rollingUpdate.maxSurge: Invalid value: "1": can not use maxSurge with podUpdatePolicy InPlaceOnly'),
])  # fmt: skip
@pytest.mark.behaviour("CS-29", "CS-30", "CS-33")
def test_invalid_update_types_and_policies_are_refused(version: str, strategy: Json, message: str) -> None:
    assert refused(version, updateStrategy=strategy) == f"spec.updateStrategy{message}"


@pytest.mark.behaviour("CS-29")
def test_on_delete_is_allowed_in_v1alpha1() -> None:
    def stored(**strategy: Any) -> Json:
        on_delete = clone_set(version=ALPHA, updateStrategy={"type": "OnDelete", **strategy})
        return write(on_delete).stored()["spec"]["updateStrategy"]

    assert stored() == {"type": "OnDelete"}
    assert stored(paused=True)["rollingUpdate"] == {"paused": True, "partition": 0, "maxUnavailable": "20%"}


@pytest.mark.parametrize(("deadline", "ready", "message"), [
    (60, 0, ""),
    (2147483647, 9, ""),
    (5, 5, "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"),
    (-1, 0, f"[spec.progressDeadlineSeconds: Invalid value: -1: {NEGATIVE}, "
            "spec.progressDeadlineSeconds: Invalid value: -1: must be greater than minReadySeconds]"),
])  # fmt: skip
@pytest.mark.behaviour("CS-37")
def test_the_progress_deadline_exceeds_min_ready_seconds(deadline: int, ready: int, message: str) -> None:
    spec = {"progressDeadlineSeconds": deadline, "minReadySeconds": ready}
    assert refused(ALPHA, **spec) == message
    beta = write(clone_set(**spec))
    assert beta.obj is not None
    assert bool(beta.warnings) is bool(message)


@pytest.mark.parametrize(("in_place", "message"), [
    ({"imagePreDownloadParallelism": "8"}, ""),
    ({"imagePreDownloadParallelism": "2147483647"}, ""),
    ({"imagePreDownloadParallelism": "2147483648"},
     'imagePreDownloadParallelism: Invalid value: "2147483648": must be a non-negative number'),
    ({"imagePreDownloadTimeoutSeconds": 5}, ""),
    ({"imagePreDownloadParallelism": "50%"},
     'imagePreDownloadParallelism: Invalid value: "50%": must be a non-negative number'),
    ({"imagePreDownloadMinUpdatedReadyPods": -1},
     f"imagePreDownloadMinUpdatedReadyPods: Invalid value: -1: {NEGATIVE}"),
])  # fmt: skip
@pytest.mark.behaviour("CS-38")
def test_invalid_predownload_settings_are_refused(in_place: Json, message: str) -> None:
    at = f"{AT[BETA]}.inPlaceUpdateStrategy."
    assert refused(BETA, updateStrategy=rolling(inPlaceUpdateStrategy=in_place)) == (at + message if message else "")


@pytest.mark.behaviour("CS-24")
def test_claims_can_be_mounted_and_the_cluster_validates_the_template() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    mounting = template(volumes=[{"name": "own", "emptyDir": {}}])
    mounting["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    message = 'spec.template.spec.hostname: Invalid value: "A": a lowercase …'
    lookups = Lookups(template=[message])
    assert refusal(clone_set(template=mounting, volumeClaimTemplates=[claim]), lookups=lookups) == message
    volumes = lookups.templates[0]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes] == ["data", "own"]
    # An unchanged template is not validated again.
    obj = created(template=mounting, volumeClaimTemplates=[claim])
    assert refusal(changed(obj, replicas=7), obj, lookups) == ""
    assert len(lookups.templates) == 1


# --- Pods to delete


def owned_pod(name: str, uid: str = UID, **metadata: Any) -> Pod:
    return objects.pod(name, ownerReferences=[objects.reference(ALPHA, "CloneSet", "cs", uid)], **metadata)


def naming(obj: Json, *names: str) -> Json:
    return changed(obj, scaleStrategy={**obj["spec"].get("scaleStrategy", {}), "podsToDelete": list(names)})


@pytest.mark.parametrize(("name", "problem"), [
    ("mine", ""),
    ("absent", 'find pod absent failed: Pod "absent" not found'),
    ("going", "find pod going already terminating"),
    ("other", "find pod other owner is not this CloneSet"),
])  # fmt: skip
@BOTH
@pytest.mark.behaviour("CS-28")
def test_a_newly_named_pod_must_belong_to_the_set(version: str, name: str, problem: str) -> None:
    going = owned_pod("going", deletionTimestamp="2026-01-01T00:00:00Z")
    pods = [owned_pod("mine"), going, owned_pod("other", uid="someone")]
    wanted = f'spec.scaleStrategy.podsToDelete: Invalid value: "{name}": {problem}' if problem else ""
    before = created(version)
    after = naming(before, name)
    written = write(after, before, Lookups(pods))
    if version == ALPHA:
        assert written.message == wanted
    else:
        assert written.warnings == ((wanted,) if wanted else ())
    # A name that was listed before is not looked up again.
    scaled = write(changed(after, replicas=9), after, Lookups())
    assert (scaled.message, scaled.warnings) == ("", ())


@pytest.mark.behaviour("CS-62")
def test_names_can_be_removed_despite_other_errors() -> None:
    stored = created(scaleStrategy={"enablePVCReuse": False, "podsToDelete": ["a", "b"]})
    stored["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 5
    cleaned = changed(stored, scaleStrategy={"enablePVCReuse": False})
    assert refusal(cleaned, stored) == ""
    assert "activeDeadlineSeconds" in refusal(changed(cleaned, replicas=9), stored)


@BOTH
@pytest.mark.behaviour("CS-27")
@pytest.mark.parametrize("listed", [["a", "a"], ["b", "a", "b"]])
def test_a_known_name_cannot_be_listed_twice(version: str, listed: list[str]) -> None:
    obj = created(version)
    assert f"duplicated items [{listed[-1]}]" in refusal(naming(obj, *listed), naming(obj, "a", "b"))
    assert refusal(naming(obj, "b"), naming(obj, "a", "b")) == ""


# --- Updates


@BOTH
@pytest.mark.behaviour("CS-39")
def test_only_the_selector_is_immutable(version: str) -> None:
    before = created(version)
    labels = {"app": "web", "tier": "front"}
    spec = {"template": {**template(), "metadata": {"labels": labels}}, "version": version}
    assert refusal(clone_set(selector={"matchLabels": labels}, **spec), before) == (
        "spec: Forbidden: updates to cloneset spec for fields other than 'replicas', 'template', 'lifecycle', "
        "'scaleStrategy', 'updateStrategy', 'minReadySeconds', 'progressDeadlineSeconds', 'volumeClaimTemplates' and "
        "'revisionHistoryLimit' are forbidden"
    )
    assert refusal(clone_set(replicas=9, minReadySeconds=3, revisionHistoryLimit=2, **spec), before) == ""


@BOTH
@pytest.mark.behaviour("CS-40")
@pytest.mark.parametrize(("container", "message"), [
    ({}, ""),
    ({"env": [{"name": "A", "value": "1"}]},
     "spec: Forbidden: only allowed to update images in spec for InPlaceOnly, but found add /containers/0/env"),
])  # fmt: skip
def test_in_place_only_allows_image_changes(version: str, container: Json, message: str) -> None:
    strategy = rolling(version, policy="InPlaceOnly")
    new = template(containers=[{"name": "main", "image": "nginx:2", **container}])
    new["metadata"]["annotations"] = {"any": "thing"}
    before = created(version, updateStrategy=strategy)
    assert refusal(clone_set(version=version, updateStrategy=strategy, template=new), before) == message


@pytest.mark.behaviour("CS-42")
def test_a_deleted_object_is_not_validated_unless_it_is_created_as_such() -> None:
    bad = clone_set(template=template(activeDeadlineSeconds=5), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert write(bad, bad).message == ""
    assert write(bad).message


# --- Checks that OpenKruise does not have

QUESTIONABLE: Json = {
    "minReadySeconds": -1,
    "revisionHistoryLimit": -1,
    "scaleStrategy": {"maxUnavailable": "-1%", "enablePVCReuse": False},
    "lifecycle": {"preDelete": {"finalizersHandler": ["a b"], "labelsHandler": {"k": "v v"}}},
}


@pytest.mark.behaviour("CS-41")
def test_questionable_fields_cause_warnings_or_with_the_gate_errors() -> None:
    lenient = write(clone_set(**QUESTIONABLE))
    assert lenient.obj is not None
    assert [warning.partition(":")[0] for warning in lenient.warnings] == [
        "spec.minReadySeconds",
        "spec.revisionHistoryLimit",
        "spec.scaleStrategy.maxUnavailable",
        "spec.lifecycle.preDelete.finalizersHandler[0]",
        "spec.lifecycle.preDelete.labelsHandler[k]",
    ]
    strict = Lookups(gates={GATE})
    assert refusal(clone_set(**QUESTIONABLE), lookups=strict).count("Invalid value") == 5
    # Objects admitted earlier can still be edited.
    assert refusal(changed(lenient.obj, replicas=9), lenient.obj, strict) == ""


@pytest.mark.behaviour("CS-41")
@pytest.mark.parametrize(("fields", "warnings"), [
    ({"updateStrategy": rolling(partition="100%")}, ()),
    ({"updateStrategy": rolling(partition="150%")},
     ('spec.updateStrategy.rollingUpdate.partition: Invalid value: "150%": is more than 100%, which has the same '
      "effect as 100%: all Pods stay at the old revision",)),
    ({"lifecycle": {"preDelete": {}}},
     ("spec.lifecycle.preDelete: Required value: has neither labelsHandler nor finalizersHandler, so it has no "
      "effect",)),
])  # fmt: skip
def test_a_field_without_effect_causes_a_warning(fields: Json, warnings: tuple[str, ...]) -> None:
    assert write(clone_set(**fields)).warnings == warnings


@pytest.mark.behaviour("CS-41")
@pytest.mark.parametrize(("spec", "message"), [
    ({"volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
     "spec.volumeClaimTemplates[0].spec: Required value: a claim needs accessModes and resources.requests.storage"),
    ({"scaleStrategy": {"maxUnavailable": "x"}},
     f'spec.scaleStrategy.maxUnavailable: Invalid value: "x": {not_scaled("maxUnavailable")}'),
])  # fmt: skip
def test_specs_that_create_no_pod_are_refused(spec: Json, message: str) -> None:
    assert refused(BETA, **spec) == message


@pytest.mark.behaviour("CS-20", "CS-143")
def test_invalid_names_are_refused_and_long_ones_get_a_warning() -> None:
    assert refusal(clone_set("Web_1")).startswith('metadata.name: Invalid value: "Web_1": a lowercase RFC 1123')
    assert write(clone_set("a" * 52)).warnings == ()
    (warning,) = write(clone_set("a" * 53)).warnings  # the revision hash would not fit into a label
    assert warning.startswith("metadata.name: Invalid value")
    assert "at most 52 characters" in warning


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
