"""From a Pod template to what a revision records of it, and back to a new Pod. Pure.

Rules PM-80, PM-81, PM-84, PM-92; for Pods CS-142 and its like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from app.api import names
from app.api.gojson import GoTypeError, dumps_go, normalized
from app.api.gopod import POD_TEMPLATE
from app.pods.revisions import Create, Revision

_PATCH: Final = "$patch"


def template_data(template: Mapping[str, Any]) -> bytes:
    """PM-80, PM-84: what a revision records of a template, byte for byte as OpenKruise writes it.

    Fields newer than the types of Kubernetes we know stay, or changing them would make no revision. A template that Go
    could not read (written past admission) has no form to agree with and stands as it came.
    """
    try:
        printed = normalized(POD_TEMPLATE, template)
    except GoTypeError:
        printed = dict(template)
    return dumps_go({"spec": {"template": {**printed, _PATCH: "replace"}}}, sort_keys=True).encode()


def recorded_template(revision: Revision) -> Mapping[str, Any] | None:
    """The template a revision records; None where it records none, as one made by hand may."""
    try:
        document = orjson.loads(revision.data)
    except orjson.JSONDecodeError:
        return None
    spec = document.get("spec") if isinstance(document, dict) else None
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return None
    return {key: value for key, value in template.items() if key != _PATCH}


def controller_revision(
    create: Create,
    namespace: str,
    owner: Mapping[str, Any],
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    hash_label: str = names.CONTROLLER_HASH,
) -> dict[str, Any]:
    """PM-81: the ControllerRevision to create. ``owner``: the workload's controller reference."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": create.name,
            "namespace": namespace,
            "labels": {**labels, hash_label: create.label_hash},
            "annotations": dict(annotations),
            "ownerReferences": [owner],
        },
        "data": orjson.Fragment(create.data),
        "revision": create.number,
    }


def pod_of_template(
    template: Mapping[str, Any],
    name: str,
    namespace: str,
    owner: Mapping[str, Any],
    *,
    generate_name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    readiness_gates: Iterable[str] = (),
) -> dict[str, Any]:
    """A new Pod: the template's labels, annotations, finalizers and spec, and what the workload adds.

    Parts of the template are shared, not copied.
    """
    given = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": {**(given.get("labels") or {}), **(labels or {})},
        "annotations": {**(given.get("annotations") or {}), **(annotations or {})},
        "ownerReferences": [owner],
    }
    if generate_name:
        metadata["generateName"] = generate_name
    if given.get("finalizers"):
        metadata["finalizers"] = given["finalizers"]
    spec = dict(template.get("spec") or {})
    gates = list(spec.get("readinessGates") or ())
    present = {gate.get("conditionType") for gate in gates}
    gates += [{"conditionType": type_} for type_ in readiness_gates if type_ not in present]
    if gates:
        spec["readinessGates"] = gates
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def revision_labels(revision: str, short: str, *, bare_hash: bool) -> dict[str, str]:
    """PM-78 as CloneSets have it: the revision's name, or its hash with gate CloneSetShortHash, and always the hash."""
    return {names.CONTROLLER_REVISION_HASH: short if bare_hash else revision, names.POD_TEMPLATE_HASH: short}
