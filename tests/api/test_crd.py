"""The CustomResourceDefinitions generated from the kinds."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api import crd
from app.api.kind import KindDefinition, find_kind
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.features.podprobe.kind import NODE_POD_PROBE, POD_PROBE_MARKER
from app.features.sidecarset.kind import SIDECAR_SET
from app.manager.features import kinds
from tests import openkruise
from tests.api.recorded import recorded, undescribed

ROOT = Path(__file__).parents[2]


@pytest.mark.behaviour("MGR-51")
def test_sidecarset_is_cluster_scoped_with_storage_version_v1beta1() -> None:
    spec = crd.manifest(SIDECAR_SET)["spec"]
    assert spec["scope"] == "Cluster"
    names = {"listKind": "SidecarSetList", "plural": "sidecarsets", "singular": "sidecarset"}
    assert spec["names"] == {"kind": "SidecarSet", **names}
    versions = {one["name"]: (one["served"], one["storage"]) for one in spec["versions"]}
    assert versions == {"v1alpha1": (True, False), "v1beta1": (True, True)}
    assert spec["conversion"]["strategy"] == "Webhook"
    assert spec["conversion"]["webhook"]["conversionReviewVersions"] == ["v1", "v1beta1"]
    assert spec["conversion"]["webhook"]["clientConfig"]["service"]["path"] == "/convert"


def test_both_versions_have_the_columns_and_the_status_subresource() -> None:
    for version in crd.manifest(SIDECAR_SET)["spec"]["versions"]:
        assert [(c["name"], c["jsonPath"]) for c in version["additionalPrinterColumns"]] == [
            ("MATCHED", ".status.matchedPods"),
            ("UPDATED", ".status.updatedPods"),
            ("READY", ".status.readyPods"),
            ("AGE", ".metadata.creationTimestamp"),
        ]
        assert version["subresources"] == {"status": {}}


def schemas(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, sub in schema.get("properties", {}).items():
        found += schemas(sub, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += schemas(schema[key], f"{path}[]")
    return found


CONSTRAINTS = ("required", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")


def constraints(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a schema's constraints by path, except required top-level fields, which webhooks check too."""
    return {
        path: {
            key: sorted(sub[key]) if isinstance(sub[key], list) else sub[key]
            for key in CONSTRAINTS
            if key in sub and (path, key) != ("", "required")
        }
        for path, sub in schemas(schema, "")
    }


def test_no_schema_refuses_what_openkruise_admits() -> None:
    """Such objects may already be stored, and a status update writes the whole status."""
    theirs = {one["metadata"]["name"]: one for one in openkruise.installed()}
    stricter, held = [], 0
    for kind in kinds():
        ours = crd.manifest(kind)
        found = theirs.get(ours["metadata"]["name"], {"spec": {"versions": []}})
        admitting = {one["name"]: constraints(one["schema"]["openAPIV3Schema"]) for one in found["spec"]["versions"]}
        for version in ours["spec"]["versions"]:
            known = admitting.get(version["name"], {})
            for path, asked in constraints(version["schema"]["openAPIV3Schema"]).items():
                if path in known:
                    held += 1
                    stricter += [(kind.kind, version["name"], path)] if not asked.items() <= known[path].items() else []
    assert stricter == []
    assert held > 500


@pytest.mark.behaviour("IMG-1", "CRR-1", "PPM-1")
@pytest.mark.parametrize(
    "kind",
    [IMAGE_PULL_JOB, IMAGE_LIST_PULL_JOB, NODE_IMAGE, CONTAINER_RECREATE_REQUEST, POD_PROBE_MARKER, NODE_POD_PROBE],
    ids=lambda kind: kind.kind,
)
def test_definitions_match_openkruise_except_for_descriptions(kind: KindDefinition) -> None:
    ours = undescribed(crd.manifest(kind)["spec"])
    theirs = copy.deepcopy(recorded("crds-node-operations.json")[kind.crd_name])
    ours.pop("conversion", None)
    for version in ours["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        # Both reject an object without spec; OpenKruise does so in its webhook.
        schema.pop("required", None)
        if kind is CONTAINER_RECREATE_REQUEST:
            container = schema["properties"]["spec"]["properties"]["containers"]["items"]["properties"]
            assert container["preStop"]["properties"].pop("sleep")  # CRR-61
    assert ours == theirs


#: Fields that OpenKruise's Go types lack. All but the first are set only by users.
OWN_FIELDS = {
    "SidecarSet": {".status.conditions"},
    "BroadcastJob": {".spec.completionPolicy.backoffLimit"},
    "AdvancedCronJob": {
        ".spec.template.broadcastJobTemplate.metadata.annotations",
        ".spec.template.broadcastJobTemplate.metadata.labels",
        ".spec.template.broadcastJobTemplate.spec.completionPolicy.backoffLimit",
        ".spec.template.imageListPullJobTemplate.metadata.annotations",
        ".spec.template.imageListPullJobTemplate.metadata.labels",
    },
    "ContainerRecreateRequest": {".spec.containers[].preStop.sleep"},
    "UnitedDeployment": {
        f".spec.template.cloneSetTemplate.spec.updateStrategy.{field}"
        for field in (
            "inPlaceUpdateStrategy",
            "maxSurge",
            "maxUnavailable",
            "partition",
            "paused",
            "priorityStrategy",
            "scatterStrategy",
        )
    },
}


def test_clients_of_openkruise_decode_every_object_strictly() -> None:
    """OpenKruise generates its schemas from its types, so names and JSON types must match."""
    theirs = {
        (one["spec"]["names"]["kind"], version["name"]): version["schema"]["openAPIV3Schema"]
        for one in openkruise.installed()
        if one["kind"] == "CustomResourceDefinition"
        for version in one["spec"]["versions"]
    }
    found: dict[str, set[str]] = {}
    of_openkruise = {name for name, _ in theirs}
    for kind in (one for one in kinds() if one.kind in of_openkruise):
        for version in kind.versions:
            known = theirs[kind.kind, version.name]
            found.setdefault(kind.kind, set()).update(undecodable(version.schema, known, ""))
    assert {kind: paths for kind, paths in found.items() if paths} == OWN_FIELDS


def undecodable(schema: dict[str, Any], known: dict[str, Any], path: str) -> set[str]:
    """Return the fields that ``known`` lacks or gives another type."""
    if path == ".metadata" or "additionalProperties" in known or known.get("x-kubernetes-preserve-unknown-fields"):
        return set()
    if known.get("type", schema.get("type")) != schema.get("type", known.get("type")):
        return {path}
    names = known.get("properties", {})
    wrong = {f"{path}.{name}" for name in schema.get("properties", {}) if name not in names}
    for name, inner in schema.get("properties", {}).items():
        wrong |= undecodable(inner, names[name], f"{path}.{name}") if name in names else set()
    if "items" in schema and "items" in known:
        wrong |= undecodable(schema["items"], known["items"], f"{path}[]")
    return wrong


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.kind)
def test_every_field_has_a_description(kind: KindDefinition) -> None:
    bare = [
        path
        for version in kind.versions
        for path, schema in schemas(version.schema, "")
        if not schema.get("description") and not path.endswith(("[]", ".metadata"))
    ]
    assert bare == []


@pytest.mark.parametrize("version", SIDECAR_SET.versions, ids=lambda version: version.name)
def test_only_core_containers_and_volumes_are_open(version: Any) -> None:
    spec = version.schema["properties"]["spec"]
    open_paths = [path for path, s in schemas(spec, "spec") if s.get("x-kubernetes-preserve-unknown-fields")]
    assert sorted(open_paths) == ["spec.containers[]", "spec.initContainers[]", "spec.volumes[]"]
    assert "required" not in spec
    assert ("namespace" in spec["properties"]) is (version.name == "v1alpha1")


def test_the_yaml_matches_the_manifest() -> None:
    for kind in kinds():
        text = crd.files((kind,))[f"{kind.group}_{kind.plural}.yaml"]
        assert yaml.safe_load(text) == crd.manifest(kind)


def test_kinds_are_found_in_any_version() -> None:
    assert find_kind("apps.kruise.io/v9", "SidecarSet") is SIDECAR_SET
    assert find_kind("apps/v1", "SidecarSet") is None
    assert find_kind("v1", "Pod") is None


def test_a_kind_knows_its_paths() -> None:
    assert SIDECAR_SET.resource().path(name="s") == "/apis/apps.kruise.io/v1beta1/sidecarsets/s"
    assert SIDECAR_SET.resource("v1alpha1").version == "v1alpha1"
    with pytest.raises(ValueError, match="version 'v2' is not served; served versions: v1beta1, v1alpha1"):
        SIDECAR_SET.resource("v2")
