"""The webhooks of StatefulSets, beyond the recorded answers."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.conversion import convert
from app.features.statefulset.plan.claims import StorageClass, expandable
from app.kube.objects import ObjectMeta
from tests.admission.writing import ALPHA, BETA
from tests.features.statefulset.writing import claim, lookups, refusal, rolling, stateful_set, write

Json = dict[str, Any]

RESIZING = {"type": "OnPodRollingUpdate"}


def judged(found: str, expected: str) -> None:
    """Check that the refusal contains the expected text, or that there is none."""
    assert (expected in found) if expected else not found


@pytest.mark.behaviour("AS-15", "AS-17", "AS-19", "AS-143")
@pytest.mark.parametrize(("obj", "message"), [
    (stateful_set("web.one"), 'metadata.name: Invalid value: "web.one"'),
    (stateful_set("w" * 52), ""),
    (stateful_set("w" * 53), "must be no more than 52 characters"),
    (stateful_set(ordinals={"start": -1}), "spec.ordinals.start: Invalid value: -1"),
    (stateful_set(volumeClaimUpdateStrategy={"type": "Sometimes"}), 'Unsupported value: "Sometimes"'),
    (stateful_set(volumeClaimTemplates=[{"metadata": {"name": "d"}}]), "Templates[0].spec: Required"),
    (stateful_set(updateStrategy={"type": "InPlaceOnly"}), "rollingUpdate.podUpdatePolicy: InPlaceOnly"),
    (stateful_set(reserveOrdinals=[-1]), "0 th reserve ordinal is invalid: -1"),
    (stateful_set(reserveOrdinals=[1, "3"]), "1 th reserve ordinal is not a valid range: 3"),
    (stateful_set(reserveOrdinals=["5-3"]), "0 th reserve ordinal is invalid: 5-3"),
    (stateful_set(reserveOrdinals=["0-99999999999999999999"]), "0 th reserve ordinal is invalid"),
    (stateful_set(reserveOrdinals=["0-" + 5000 * "9"]), "0 th reserve ordinal is invalid"),
    (stateful_set(reserveOrdinals=[5000 * "0" + "1-2"]), ""),
    (stateful_set(reserveOrdinals=["3-5", 3, "٣-٥"]), "2 th reserve ordinal is not a valid range"),
    (stateful_set(scaleStrategy={}), ""),
    (stateful_set(updateStrategy=rolling(maxUnavailable="5")), "a valid percent string"),
    (stateful_set(updateStrategy=rolling(maxUnavailable="0%")), "should not be less than 1"),
    (stateful_set(updateStrategy=rolling(maxUnavailable="")), "a valid percent string"),
])  # fmt: skip
def test_invalid_specs_are_refused(obj: dict[str, Any], message: str) -> None:
    judged(refusal(obj), message)


@pytest.mark.behaviour("AS-143")
@pytest.mark.parametrize("fields", [{"ordinals": {"start": -1}}, {"volumeClaimUpdateStrategy": {"type": "Sometimes"}}])
def test_a_stored_object_with_values_that_openkruise_admits_stays_editable(fields: Json) -> None:
    old = stateful_set(**fields)
    assert refusal(stateful_set(**fields, replicas=4), old) == ""
    assert refusal(stateful_set(ordinals={"start": -2}), old)


BAD_LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character"
)


@pytest.mark.behaviour("AS-26")
@pytest.mark.parametrize(("metadata", "message"), [
    ({"labels": {"app": "web", "tier": "not valid"}}, f'spec.template.labels: Invalid value: "not valid": {BAD_LABEL}'),
    ({"labels": {"app": "web", "-tier": "a"}}, 'spec.template.labels: Invalid value: "-tier": name part must consist'),
    ({"labels": {"app": "web"}, "annotations": {"no key": ""}}, 'spec.template.annotations: Invalid value: "no key"'),
    ({"labels": {"app": "web"}, "annotations": {"Example.com/Key": ""}}, ""),
])  # fmt: skip
def test_labels_and_annotations_of_the_template_are_validated(metadata: Json, message: str) -> None:
    made = stateful_set()
    made["spec"]["template"]["metadata"] = metadata
    judged(refusal(made), message)


@pytest.mark.behaviour("AS-4", "AS-137")
def test_an_edit_through_v1alpha1_keeps_hidden_fields() -> None:
    hooks = {"preDelete": {"labelsHandler": {"hold": "yes"}}}
    stored = write(stateful_set(reserveOrdinals=[1, "3-5"], lifecycle=hooks, ordinals={"start": 2})).stored()
    seen = convert(stored, ALPHA)
    assert "reserveOrdinals" not in seen["spec"]
    seen["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 2
    after = convert(write(seen, convert(stored, ALPHA)).obj or {}, BETA)
    assert after["spec"].pop("updateStrategy")["rollingUpdate"]["partition"] == 2
    assert after["spec"] == {key: value for key, value in stored["spec"].items() if key != "updateStrategy"}


def sized(requests: Json, limits: Json | None = None, **more: Any) -> Json:
    return {"resources": {"requests": requests, **({"limits": limits} if limits else {})}, **more}


ONE = sized({"cpu": "1"}, {"memory": "1Gi"})
#: The image changes as well.
NEW: Json = {"image": "nginx:2"}


@pytest.mark.behaviour("AS-29", "AS-144")
@pytest.mark.parametrize(("gate", "old", "new", "refused"), [
    (False, {}, NEW, ""),
    (False, {}, {"imagePullPolicy": "Never"}, "found replace /containers/0/imagePullPolicy"),
    (False, {}, {"command": ["sleep"]}, "found add /containers/0/command"),
    (True, ONE, sized({"cpu": "2"}, {"memory": "2Gi"}, **NEW), ""),
    (False, ONE, sized({"cpu": "2"}, {"memory": "1Gi"}, **NEW), "only allowed to update images in spec"),
    (True, ONE, sized({"cpu": "2"}, **NEW), "found remove /containers/0/resources/limits"),
    (True, ONE, sized({"cpu": "1"}, {"memory": "1Gi", "nvidia.com/gpu": "1"}, **NEW), "found add"),
    (True, ONE, sized({"cpu": "1"}, {"nvidia.com/gpu": "1"}, **NEW), "found remove"),
    (True, sized({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}),
     sized({"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}),
     "the QoS class would change from Burstable to Guaranteed"),
])  # fmt: skip
def test_in_place_only_allows_what_running_pods_can_change(gate: bool, old: Json, new: Json, refused: str) -> None:
    def of(container: Json) -> Json:
        made = stateful_set(updateStrategy=rolling(podUpdatePolicy="InPlaceOnly"))
        made["spec"]["template"]["spec"]["containers"][0] |= container
        return made

    asked = lookups(["InPlaceWorkloadVerticalScaling"] if gate else [])
    judged(refusal(of(new), write(of(old)).stored(), asked), refused)


@pytest.mark.behaviour("AS-30", "AS-31", "AS-32")
@pytest.mark.parametrize(("template", "classes", "refused"), [
    (claim("2Gi"), {"": True}, ""),
    (claim("2Gi"), {"": False}, "does not allow claims of data to be expanded"),
    (claim("2Gi"), {}, ""),
    (claim("2Gi", storageClassName="fast"), {"fast": None}, 'storage class "fast" does not exist'),
    (claim(accessModes=["ReadWriteMany"]), {}, "spec.accessModes: Forbidden"),
    (claim(name="other"), {}, "cannot be added, removed or renamed"),
])  # fmt: skip
def test_claim_templates_are_validated_by_the_new_strategy(
    template: dict[str, Any], classes: dict[str, bool | None], refused: str
) -> None:
    old = write(stateful_set(volumeClaimTemplates=[claim()])).stored()
    new = stateful_set(volumeClaimTemplates=[template], volumeClaimUpdateStrategy=RESIZING)
    judged(refusal(new, old, lookups(classes=classes)), refused)
    free = stateful_set(volumeClaimTemplates=[template])
    assert not refusal(free, old, lookups(classes=classes))


@pytest.mark.behaviour("AS-31")
def test_the_newest_default_class_is_used_and_classes_do_not_allow_expansion_by_default() -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    made = [
        StorageClass(ObjectMeta(name="a", annotations=default)),
        StorageClass(ObjectMeta(name="b", annotations=default), allow_volume_expansion=True),
    ]
    known = expandable(made)
    assert (known[""], known["a"], known["b"], known["c"]) == (True, False, True, None)
    assert "" not in expandable([])


@pytest.mark.behaviour("AS-150")
def test_reserving_an_ordinal_whose_claims_are_deleted_causes_a_warning() -> None:
    policy = {"whenScaled": "Delete"}
    old = write(stateful_set(volumeClaimTemplates=[claim()], persistentVolumeClaimRetentionPolicy=policy)).stored()
    new = write({**old, "spec": {**old["spec"], "reserveOrdinals": [1]}}, old)
    assert any("the claims of a Pod whose ordinal is reserved are deleted" in text for text in new.warnings)
    assert not write(new.stored(), new.stored()).warnings


def test_settings_without_effect_get_a_warning() -> None:
    strategy = rolling(inPlaceUpdateStrategy={"gracePeriodSeconds": -1})
    obj = stateful_set(
        updateStrategy=strategy,
        revisionHistoryLimit=-1,
        lifecycle={"preDelete": {}},
        volumeClaimTemplates=[claim(), claim()],
    )
    warned = write(obj).warnings
    assert len(warned) == 4


@pytest.mark.behaviour("AS-140")
@pytest.mark.parametrize(("value", "spec", "warning"), [
    ("true", {"podManagementPolicy": "OrderedReady"}, ""),
    ("false", {}, ""),
    ("yes", {}, 'must be "true" or "false"; it is treated as "false"'),
    ("true", {"podManagementPolicy": "Parallel"}, "with podManagementPolicy Parallel no Pod waits for another"),
    ("true", {"podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "OnDelete"}},
     "with updateStrategy.type OnDelete nothing is updated"),
])  # fmt: skip
def test_a_repair_without_effect_gets_a_warning(value: str, spec: Json, warning: str) -> None:
    metadata = {"annotations": {"pykruise.io/repair-ordered-ready": value}}
    written = write(stateful_set(metadata=metadata, **spec))
    warned = written.warnings
    assert len(warned) == bool(warning)
    # An unchanged annotation causes no warning.
    assert not write(
        {**written.stored(), "spec": {**written.stored()["spec"], "replicas": 4}}, written.stored()
    ).warnings
    assert all(warning in one and "metadata.annotations[pykruise.io/repair-ordered-ready]" in one for one in warned)
