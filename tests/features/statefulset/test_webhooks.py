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


@pytest.mark.behaviour("AS-29")
@pytest.mark.parametrize(("field", "value", "refused"), [
    ("image", "nginx:2", ""),
    ("imagePullPolicy", "Never", "found replace /containers/0/imagePullPolicy"),
    ("command", ["sleep"], "found add /containers/0/command"),
])  # fmt: skip
def test_in_place_only_allows_image_changes(field: str, value: Any, refused: str) -> None:
    strategy = rolling(podUpdatePolicy="InPlaceOnly")
    old = write(stateful_set(updateStrategy=strategy)).stored()
    new = write(stateful_set(updateStrategy=strategy)).stored()
    new["spec"]["template"]["spec"]["containers"][0][field] = value
    judged(refusal(new, old), refused)


@pytest.mark.behaviour("AS-144")
@pytest.mark.parametrize(("gate", "resources", "refused"), [
    (True, {"requests": {"cpu": "2"}, "limits": {"memory": "2Gi"}}, ""),
    (False, {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}, "only allowed to update images in spec"),
    (True, {"requests": {"cpu": "2"}}, "found remove /containers/0/resources/limits"),
    (True, {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "1"}}, "found add"),
    (True, {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}, "found remove"),
])  # fmt: skip
def test_in_place_only_allows_resources_where_pods_can_change_them(gate: bool, resources: Json, refused: str) -> None:
    def of(resources: Json, image: str) -> Json:
        made = stateful_set(updateStrategy=rolling(podUpdatePolicy="InPlaceOnly"))
        made["spec"]["template"]["spec"]["containers"][0] |= {"image": image, "resources": resources}
        return made

    asked = lookups(["InPlaceWorkloadVerticalScaling"] if gate else [])
    old = write(of({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}, "nginx:1")).stored()
    judged(refusal(of(resources, "nginx:2"), old, asked), refused)


@pytest.mark.behaviour("AS-144")
def test_in_place_only_keeps_the_qos_class() -> None:
    def of(cpu: str) -> Json:
        made = stateful_set(updateStrategy=rolling(podUpdatePolicy="InPlaceOnly"))
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
        made["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
        return made

    asked = lookups(["InPlaceWorkloadVerticalScaling"])
    assert "the QoS class would change from Burstable to Guaranteed" in refusal(of("2"), write(of("1")).stored(), asked)


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
