"""The webhooks of UnitedDeployment, and its conversion."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest

from app.api.conversion import convert
from app.api.crd import manifest
from app.features.cloneset.kind import ROLLING_FIELDS
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.uniteddeployment.validation import patch_errors
from app.features.uniteddeployment.webhooks import handlers, read
from app.kube.jsonvalues import json_copy
from app.pods.template_check import TemplateLookups
from tests import openkruise
from tests.admission.writing import ALPHA, BETA, Json, Written, written
from tests.api.recorded import undescribed
from tests.features.uniteddeployment.world import united_spec

HANDLERS = handlers(TemplateLookups())
SHORT_HASHES = handlers(TemplateLookups(), short_hash=True)


def united(*subsets: Json, kind: str = "deploymentTemplate", version: str = BETA, **spec: Any) -> Json:
    topology = {"subsets": list(subsets) or [{"name": "a"}, {"name": "b"}]}
    return {
        "apiVersion": version,
        "kind": "UnitedDeployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"topology": topology, **json_copy(united_spec(4, kind)), **spec},
    }


def write(obj: Json, old: Json | None = None) -> Written:
    return written(UNITED_DEPLOYMENT, HANDLERS, obj, old)


@pytest.mark.behaviour("UD-7", "UD-8", "UD-10", "UD-11", "UD-12", "UD-13", "UD-24")
@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (united(replicas=-1), "spec.replicas: Invalid value: -1"),
        (united(selector={}), "spec.selector: Invalid value"),
        (united(selector={"matchLabels": {"app": "other"}}), "deploymentTemplate.metadata.labels: Invalid value"),
        (united({"name": "A_"}), "spec.topology.subsets[0].name: Invalid value"),
        (united({"name": "a"}, {"name": "a"}), "spec.topology.subsets[1].name: Invalid value"),
        (
            united({"name": "a", "nodeSelectorTerm": {"matchExpressions": [{"key": "zone", "operator": "In"}]}}),
            "spec.topology.subsets[0].nodeSelectorTerm.matchExpressions[0].values: Required value",
        ),
        (
            united({"name": "a"}, {"name": "b", "tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]}),
            "spec.topology.subsets[1].tolerations[0].operator: Invalid value",
        ),
        (united({"name": "a", "replicas": "x"}), "spec.topology.subsets[0].replicas: Invalid value"),
        (united({"name": "a", "replicas": "150%"}), "should be between 0% and 100%"),
        (united({"name": "a", "replicas": 5}, {"name": "b"}), "should not be greater than UnitedDeployment replicas 4"),
        (united({"name": "a", "replicas": 1, "minReplicas": 1}), "are mutually exclusive"),
        (united({"name": "a", "maxReplicas": 1}), "at least one subset.maxReplicas must be empty"),
        (united(template={"deploymentTemplate": {"spec": {"template": {}}}}), "spec.containers: Required value"),
    ],
)
def test_impossible_specs_are_refused_by_field(obj: Json, said: str) -> None:
    assert said in write(obj).shown


@pytest.mark.behaviour("UD-21")
def test_v1alpha1_is_validated_like_v1beta1() -> None:
    obj = united({"name": "a", "replicas": 9}, version=ALPHA)
    assert "should not be greater than UnitedDeployment replicas 4" in write(obj).message
    stored = write(united(kind="statefulSetTemplate", version=ALPHA)).obj
    assert stored is not None
    changed = json_copy(stored)
    changed["spec"]["selector"]["matchLabels"]["more"] = "x"
    assert "spec.selector: Forbidden" in write(changed, stored).message


PARTITIONED = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}


@pytest.mark.behaviour("UD-9")
@pytest.mark.parametrize(
    ("kind", "more", "field"),
    [
        ("deploymentTemplate", {"replicas": 2}, "replicas"),
        ("cloneSetTemplate", {"replicas": 2}, "replicas"),
        ("statefulSetTemplate", {"updateStrategy": PARTITIONED}, "partition"),
        ("advancedStatefulSetTemplate", {"updateStrategy": PARTITIONED}, "partition"),
    ],
)
def test_a_template_cannot_set_fields_of_the_subset(kind: str, more: Json, field: str) -> None:
    obj = united(kind=kind)
    obj["spec"]["template"][kind]["spec"] |= more
    assert f"{field} in template will not be used" in write(obj).message


@pytest.mark.behaviour("UD-10")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"podManagementPolicy": "Other"}, "podManagementPolicy: Invalid value: \"Other\": must be 'OrderedReady' or"),
        ({"updateStrategy": {"type": "Other"}}, "must be 'RollingUpdate' or 'OnDelete'"),
        (
            {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {}}},
            "updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'",
        ),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Keep"}},
            'persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Keep": supported values: "Retain"',
        ),
        ({"minReadySeconds": -1}, "minReadySeconds: Invalid value: -1: must be greater than or equal to 0"),
        ({"ordinals": {"start": -1}}, "ordinals.start: Invalid value: -1: must be greater than or equal to 0"),
    ],
)
def test_a_stateful_set_that_the_api_server_would_refuse_is_refused(more: Json, said: str) -> None:
    obj = united(kind="statefulSetTemplate")
    assert write(obj).message == ""
    obj["spec"]["template"]["statefulSetTemplate"]["spec"] |= more
    message = write(obj).message
    assert said in message
    assert message.startswith("spec.template.statefulSetTemplate.spec.")


@pytest.mark.behaviour("UD-10")
@pytest.mark.parametrize(
    "kind", ["statefulSetTemplate", "advancedStatefulSetTemplate", "cloneSetTemplate", "deploymentTemplate"]
)
def test_pods_of_a_template_must_always_restart(kind: str) -> None:
    obj = united(kind=kind)
    obj["spec"]["template"][kind]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    at = f"spec.template.{kind}.spec.template.spec.restartPolicy"
    assert write(obj).message == f'{at}: Unsupported value: "Never": supported values: "Always"'


@pytest.mark.behaviour("UD-8")
def test_an_object_admitted_by_openkruise_stays_editable() -> None:
    stored = united(kind="cloneSetTemplate")
    stored["spec"]["template"]["cloneSetTemplate"]["spec"]["replicas"] = 3
    assert "replicas in template will not be used" in write(stored).message
    changed = json_copy(stored)
    changed["spec"]["replicas"] = 9
    assert write(changed, stored).message == ""
    changed["spec"]["template"]["cloneSetTemplate"]["metadata"]["labels"] = {}
    message = write(changed, stored).message
    assert "`selector` does not match template `labels`" in message
    assert "replicas in template" not in message


@pytest.mark.behaviour("UD-17", "UD-18")
def test_fields_that_subsets_cannot_change_are_immutable() -> None:
    stored = write(united(kind="statefulSetTemplate")).stored()
    changed = json_copy(stored)
    changed["spec"]["template"]["statefulSetTemplate"]["spec"]["serviceName"] = "other"
    changed["spec"]["topology"]["subsets"][0]["tolerations"] = [{"operator": "Exists"}]
    message = write(changed, stored).message
    fields = "spec.template.statefulSetTemplate.spec: Forbidden", "spec.topology.subsets[0].tolerations: Forbidden"
    assert 0 <= message.find(fields[0]) < message.find(fields[1])
    changed = json_copy(stored)
    changed["spec"]["selector"]["matchLabels"]["more"] = "x"
    assert "spec.selector: Forbidden: may not be changed" in write(changed, stored).message
    changed = json_copy(stored)
    changed["spec"]["template"]["statefulSetTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2"
    assert write(changed, stored).message == ""


@pytest.mark.behaviour("UD-5", "UD-17")
def test_writing_a_manifest_again_changes_nothing() -> None:
    manifest = united(kind="statefulSetTemplate")
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    zeros = {"minReadySeconds": 0, "podManagementPolicy": "", "ordinals": None}
    manifest["spec"]["template"]["statefulSetTemplate"]["spec"] |= {"volumeClaimTemplates": claims, **zeros}
    stored = write(manifest).stored()
    spec = stored["spec"]["template"]["statefulSetTemplate"]["spec"]
    assert spec["serviceName"] == ""
    assert not spec.keys() & zeros.keys()
    (claim,) = spec["volumeClaimTemplates"]
    assert (claim["metadata"]["creationTimestamp"], claim["status"]) == (None, {"phase": "Pending"})
    again = write(manifest, stored)
    assert again.message == ""
    assert again.obj == stored


@pytest.mark.behaviour("UD-16")
def test_an_empty_field_of_a_toleration_is_no_change() -> None:
    stored = write(united({"name": "a", "tolerations": [{"operator": "Exists"}]})).stored()
    changed = json_copy(stored)
    (subset,) = changed["spec"]["topology"]["subsets"]
    subset |= {"nodeSelectorTerm": {}, "tolerations": [{"operator": "Exists", "key": ""}]}
    assert write(changed, stored).message == ""
    subset["tolerations"][0]["key"] = "zone"
    assert "spec.topology.subsets[0].tolerations: Forbidden: may not be changed" in write(changed, stored).message


@pytest.mark.behaviour("UD-22")
@pytest.mark.parametrize("version", [ALPHA, BETA])
def test_defaults_use_the_requested_version_once(version: str) -> None:
    obj = united(version=version)
    del obj["spec"]["replicas"]
    once = write(obj).obj
    assert once is not None
    assert (once["apiVersion"], once["spec"]["replicas"], once["spec"]["revisionHistoryLimit"]) == (version, 1, 10)
    assert write(once).obj == once


@pytest.mark.behaviour("UD-3")
def test_the_status_round_trips() -> None:
    beta = united()
    entries = [{"name": "a", "replicas": 2, "partition": 1, "readyReplicas": 1}, {"name": "b", "replicas": 2}]
    beta["status"] = {"replicas": 4, "updatedReplicas": 1, "currentRevision": "web-1", "updatedRevision": "web-2"}
    beta["status"]["subsetStatuses"] = entries
    alpha = convert(beta, ALPHA)
    assert alpha["status"]["subsetReplicas"] == {"a": 2, "b": 2}
    assert alpha["status"]["updateStatus"] == {"updatedRevision": "web-2", "currentPartitions": {"a": 1, "b": 0}}
    assert convert(alpha, BETA)["status"]["updatedRevision"] == "web-2"
    assert [one["replicas"] for one in convert(alpha, BETA)["status"]["subsetStatuses"]] == [2, 2]


@pytest.mark.behaviour("UD-3")
def test_a_flat_cloneset_strategy_is_nested_on_storage() -> None:
    alpha = united(kind="cloneSetTemplate", version=ALPHA)
    spec = alpha["spec"]["template"]["cloneSetTemplate"]["spec"]
    spec["updateStrategy"] = {"type": "InPlaceIfPossible", "maxUnavailable": 2}
    stored = convert(alpha, BETA)["spec"]["template"]["cloneSetTemplate"]["spec"]["updateStrategy"]
    assert stored == {
        "type": "RollingUpdate",
        "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 2},
    }
    assert spec["updateStrategy"]["type"] == "InPlaceIfPossible"


@pytest.mark.behaviour("UD-71")
@pytest.mark.parametrize(
    ("kind", "length", "refused"),
    [
        ("deploymentTemplate", 52, False),
        ("deploymentTemplate", 53, True),
        ("cloneSetTemplate", 46, False),
        ("cloneSetTemplate", 47, True),
        ("cloneSetTemplate with short hashes", 52, False),
        ("cloneSetTemplate with short hashes", 53, True),
        ("statefulSetTemplate", 46, False),
        ("statefulSetTemplate", 47, True),
        ("advancedStatefulSetTemplate", 47, True),
    ],
)
def test_names_too_long_for_pods_are_refused_on_creation(kind: str, length: int, refused: bool) -> None:
    kind, _, short = kind.partition(" with ")
    obj = united(kind=kind)
    obj["metadata"]["name"] = "w" * length
    found = written(UNITED_DEPLOYMENT, SHORT_HASHES if short else HANDLERS, obj)
    assert ("metadata.name: Invalid value" in found.message) is refused
    if refused and not short:
        named = {"cloneSetTemplate": "its CloneSets", "deploymentTemplate": "its revision"}.get(
            kind, "its StatefulSets"
        )
        assert f"a label of the Pods contains the name of {named} and a hash" in found.message
        # Stored objects may still be updated.
        assert write(obj, obj).message == ""


@pytest.mark.behaviour("UD-72")
def test_inapplicable_patches_are_refused_when_they_or_the_template_change() -> None:
    nameless = {"spec": {"containers": [{"image": "nginx:1.26"}]}}
    obj = write(united({"name": "a", "patch": {"metadata": {"labels": {"tier": "gold"}}}}, {"name": "b"})).stored()
    obj["spec"]["topology"]["subsets"][1]["patch"] = nameless
    found = write(obj)
    assert "spec.topology.subsets[1].patch: Invalid value: b: cannot be merged with the Pod template: " in found.message
    assert "does not contain declared merge key: name" in found.message
    # A stored object may be scaled and corrected.
    more = json_copy(obj)
    more["spec"]["replicas"] = 6
    assert write(more, obj).message == ""
    more["spec"]["topology"]["subsets"][1]["patch"] = {"spec": {"priority": 1}}
    assert write(more, obj).message == ""
    other = json_copy(obj)
    container = other["spec"]["template"]["deploymentTemplate"]["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "nginx:1.26"
    assert "subsets[1].patch: Invalid value" in write(other, obj).message


@pytest.mark.behaviour("UD-72", "MGR-164")
@pytest.mark.parametrize(("bytes_", "merged"), [(10, 64), (300_000, 3), (1_200_000, 1)])
def test_few_patches_are_merged_with_a_large_template(bytes_: int, merged: int) -> None:
    obj = united(*({"name": f"s{number}", "patch": {"spec": {"containers": [{}]}}} for number in range(70)))
    metadata = obj["spec"]["template"]["deploymentTemplate"]["spec"]["template"]["metadata"]
    metadata["annotations"] = {"text": "x" * bytes_}
    assert len(patch_errors(read(obj), None)) == merged


def with_partition(kind: str, strategy: Json) -> Json:
    obj = united(kind=kind)
    obj["spec"]["template"][kind]["spec"]["updateStrategy"] = strategy
    return obj


UNTYPED = {"rollingUpdate": {"partition": 1}}


@pytest.mark.behaviour("UD-8", "UD-9")
@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (united(updateStrategy={"manualUpdate": {"partitions": {"a": 1}}}), "Deployments have no partition"),
        (with_partition("cloneSetTemplate", PARTITIONED), "rollingUpdate.partition: ignored; set"),
        (with_partition("statefulSetTemplate", UNTYPED), "rollingUpdate.partition: ignored; set"),
        (with_partition("advancedStatefulSetTemplate", UNTYPED), "rollingUpdate.partition: ignored; set"),
        (united(topology={"subsets": [], "scheduleStrategy": {"adaptive": {}}}), "has no effect unless the type"),
        (united(topology={"subsets": []}), "without subsets, no Pods are created"),
    ],
)
def test_settings_without_effect_get_a_warning(obj: Json, said: str) -> None:
    assert any(said in one for one in write(obj).warnings)


@pytest.mark.behaviour("UD-3")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_the_schema_of_a_subset_template_matches_openkruise(version: str) -> None:
    def definition() -> dict[str, Any]:
        return next(one for one in openkruise.installed() if one["metadata"]["name"] == UNITED_DEPLOYMENT.crd_name)

    def templates(definition: dict[str, Any]) -> dict[str, Any]:
        versions = undescribed(definition["spec"]["versions"])
        schema = next(one for one in versions if one["name"] == version)["schema"]["openAPIV3Schema"]
        found: dict[str, Any] = schema["properties"]["spec"]["properties"]["template"]["properties"]
        return {name: found[name]["properties"]["spec"] for name in ("advancedStatefulSetTemplate", "cloneSetTemplate")}

    ours, theirs = templates(manifest(UNITED_DEPLOYMENT)), templates(definition())
    for name, spec in ours.items():
        for field in ("template", "volumeClaimTemplates"):  # raw objects and a list of them: any content
            spec["properties"][field] = theirs[name]["properties"][field]
    if version == "v1alpha1":
        # Releases of OpenKruise that had no nested strategy wrote a flat one.
        strategy = ours["cloneSetTemplate"]["properties"]["updateStrategy"]["properties"]
        for field in ROLLING_FIELDS:
            del strategy[field]
        # With it, each write of an unchanged v1alpha1 object raises the generation, because conversion omits false.
        del theirs["cloneSetTemplate"]["properties"]["scaleStrategy"]["properties"]["enablePVCReuse"]["default"]
    assert ours == theirs


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("deploymentTemplate", "spec.stratgy"),
        ("statefulSetTemplate", "spec.servceName"),
        ("cloneSetTemplate", "spec.template.spec.contaners"),
    ],
)
def test_a_misspelled_field_of_a_workload_gets_a_warning(kind: str, field: str) -> None:
    obj = united(kind=kind)
    *parents, name = field.split(".")
    place = functools.reduce(operator.getitem, parents, obj["spec"]["template"][kind])
    place[name] = [{"name": "x"}]
    assert write(obj).warnings == (f"spec.template.{kind}.{field}: unknown field; it has no effect",)
