"""Revisions of Pod templates: their content, their hashes, and which are current, new or obsolete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeAlias

import orjson

from app.api import names
from app.api.gojson import GoTypeError, dumps_go, normalized
from app.api.gopod import POD_TEMPLATE
from app.kube.hashes import fnv32, fnv32a, safe_encode
from app.kube.objects import ControllerRevision, OwnerReference
from app.pods.predicates import Owner, is_controlled_by
from app.pods.template_text import OPENKRUISE, TextError, template_text

# Revision history, kept in ControllerRevisions: what a changed template adds to it, and what may be deleted. Pure: a
# revision is represented by :class:`Revision`, and plans are returned as values. [PM-81 … PM-93]

NAME_LIMIT = 223
"""Maximum length of the workload's part of the name, which leaves room for the longest hash. [PM-83]"""
MAX_PASSED_OVER = 10
"""Maximum number of names to compare with known revisions; the API server reports any further collision."""


@dataclass(frozen=True, slots=True)
class Revision:
    """The fields of a ControllerRevision that plans need.

    ``data`` is its content as Go writes it: compact, with sorted keys. [PM-84]
    """

    name: str
    number: int
    data: bytes
    created: str = ""
    uid: str = ""
    resource_version: str = ""
    namespace: str = ""
    controller: OwnerReference | None = None
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reuse:
    """A recorded revision has this content. It gets ``number``, which makes an older revision the newest (a rollback).
    [PM-88, PM-89]"""

    revision: Revision
    number: int


@dataclass(frozen=True, slots=True)
class Create:
    """No recorded revision has this content. ``label_hash`` keeps the first hash even if a collision changes the name.
    [PM-90]"""

    name: str
    label_hash: str
    number: int
    collision_count: int
    data: bytes


RevisionPlan: TypeAlias = Reuse | Create
#: Returns the hash of data and a collision count.
Digest: TypeAlias = Callable[[bytes, int], str]


def revision_of(stored: ControllerRevision) -> Revision:
    """Convert a stored ControllerRevision, and sort the keys of its data. [PM-87]"""
    metadata, data = stored.metadata, orjson.loads(bytes(stored.data))
    _complete_template(data)
    return Revision(
        name=metadata.name,
        number=stored.revision,
        data=dumps_go(data, sort_keys=True).encode(),
        created=metadata.creation_timestamp.isoformat() if metadata.creation_timestamp else "",
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        namespace=metadata.namespace,
        controller=metadata.controller,
        deleting=metadata.deletion_timestamp is not None,
        labels=metadata.labels,
        annotations=metadata.annotations,
    )


def _complete_template(data: object) -> None:
    """Restore the null creation timestamp of a template, which Kubernetes 1.34 no longer writes. Without it, a migrated
    native workload would roll out for no reason."""
    for field_name in ("spec", "template", "metadata"):
        data = data.get(field_name) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.setdefault("creationTimestamp", None)


def revision_hash(data: bytes, collision_count: int | None) -> str:
    """Return the FNV-1 hash of the data and the decimal collision count, encoded without vowels. [PM-82]"""
    salt = b"" if collision_count is None else str(collision_count).encode()
    return safe_encode(str(fnv32(data + salt)))


def template_hash(data: bytes, collision_count: int = 0, *, release: str = OPENKRUISE) -> str:
    """Return the FNV-1a hash of the template in ``data``, printed as in Go, and of any nonzero collision count. [DS-53]

    If the data contains no template that Go can read, return its :func:`revision_hash`.
    """
    try:
        template = orjson.loads(data)["spec"]["template"]
        text = template_text({key: value for key, value in template.items() if key != "$patch"}, release)
    except (TextError, LookupError, TypeError, AttributeError, orjson.JSONDecodeError):
        return revision_hash(data, collision_count)
    salt = (collision_count & 0xFFFFFFFF).to_bytes(8, "little") if collision_count else b""
    return safe_encode(str(fnv32a(text.encode() + salt)))


def revision_name(workload: str, digest: str) -> str:
    """Return the revision's name: the workload's name, truncated, and the hash. [PM-83]"""
    return f"{workload[:NAME_LIMIT]}-{digest}"


def short_hash(revision: str) -> str:
    """Return the part of a revision's name after the last ``-``; a bare hash is returned unchanged."""
    return revision.rpartition("-")[2]


def is_same_revision(one: str, other: str) -> bool:
    """Return whether the names or their hashes are equal; an empty name equals no other. [PM-78]"""
    return bool(one) and bool(other) and (one == other or short_hash(one) == short_hash(other))


def current_revision(recorded: str, ordered: Sequence[Revision], update: Revision) -> Revision:
    """Return the revision named in a workload's status if it still exists, else the update revision. [PM-92]"""
    return next((revision for revision in ordered if revision.name == recorded), update)


def in_order(revisions: Iterable[Revision]) -> list[Revision]:
    """Sort oldest first, by number, then creation time, then name. [PM-86]"""
    return sorted(revisions, key=lambda revision: (revision.number, revision.created, revision.name))


def next_number(ordered: Sequence[Revision]) -> int:
    """Return the newest number plus one, or 1. [PM-86]"""
    return ordered[-1].number + 1 if ordered else 1


def of_owner(revisions: Iterable[Revision], owner: Owner) -> list[Revision]:
    """Return the revisions without a controller and those that ``owner`` controls. [PM-85]"""
    return [one for one in revisions if one.controller is None or is_controlled_by(one, owner)]


def plan_revision(
    workload: str, data: bytes, ordered: Sequence[Revision], collision_count: int, digest: Digest = revision_hash
) -> RevisionPlan:
    """Return how to record ``data``, given the revisions of this workload, oldest first.

    A revision that is being deleted is not reused: it would be gone by the time a Pod needs it. Names of existing
    revisions are skipped. [PM-90]
    """
    standing = [revision for revision in ordered if not revision.deleting]
    equal = [revision for revision in standing if revision.data == data]
    number = next_number(ordered)
    if not equal:
        taken = {revision.name for revision in ordered}
        for count in range(collision_count, collision_count + MAX_PASSED_OVER):
            hashed = digest(data, count)
            if revision_name(workload, hashed) not in taken:
                break
        return Create(revision_name(workload, hashed), hashed, number, count, data)
    newest = equal[-1]
    is_newest = newest is standing[-1] and newest.number == ordered[-1].number
    return Reuse(newest, newest.number if is_newest else number)


def after_clash(workload: str, create: Create, existing: Revision, digest: Digest = revision_hash) -> RevisionPlan:
    """Return the next plan after the API server reports that the name exists: reuse the revision if it has the same
    content, else try the next name. [PM-90]

    A revision left behind by a deleted workload of the same name would be garbage-collected with its old owner, so it
    must be adopted [SS-121]. A revision that is being deleted cannot be kept, so another name is used.
    """
    if existing.data == create.data and not existing.deleting:
        return Reuse(existing, max(existing.number, create.number))
    count = create.collision_count + 1
    return replace(create, name=revision_name(workload, digest(create.data, count)), collision_count=count)


def oldest_unused(ordered: Sequence[Revision], in_use: Collection[str], surplus: int) -> tuple[Revision, ...]:
    """Return up to ``surplus`` revisions whose names are not in use, oldest first."""
    unused = (revision for revision in ordered if revision.name not in in_use and not revision.deleting)
    return tuple(islice(unused, max(0, surplus)))


def surplus_of_workload(ordered: Sequence[Revision], in_use: Collection[str], limit: int) -> tuple[Revision, ...]:
    """Return the revisions to delete, oldest first. Revisions in use do not count; of the others, the newest ``limit``
    remain. [PM-93]"""
    unused = sum(1 for revision in ordered if revision.name not in in_use and not revision.deleting)
    return oldest_unused(ordered, in_use, unused - limit)


# Conversion of a Pod template to the recorded data, and back to a new Pod. [PM-80, PM-81, PM-84, PM-92, CS-142]

_PATCH: Final = "$patch"


def template_data(template: Mapping[str, Any]) -> bytes:
    """Return the data a revision records for a template, byte for byte as OpenKruise writes it. [PM-80, PM-84]

    Fields newer than the Kubernetes types we know are kept; otherwise, changing them would not create a revision. A
    template that Go cannot read, because it bypassed admission, is recorded unchanged.
    """
    try:
        printed = normalized(POD_TEMPLATE, template)
    except GoTypeError:
        printed = dict(template)
    return dumps_go({"spec": {"template": {**printed, _PATCH: "replace"}}}, sort_keys=True).encode()


def recorded_template(revision: Revision) -> Mapping[str, Any] | None:
    """Return the recorded template, or None if there is none, as in a manually created revision."""
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
    """Return the ControllerRevision to create. ``owner`` is the workload's controller reference. [PM-81]"""
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
    generate_name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    readiness_gates: Iterable[str] = (),
) -> dict[str, Any]:
    """Return a new Pod: the template's labels, annotations, finalizers and spec, with the workload's additions.

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
    """Return the revision labels of a CloneSet's Pods: pod-template-hash with the hash, and controller-revision-hash
    with the revision's name or, with ``bare_hash``, only the hash. [PM-78]"""
    return {names.CONTROLLER_REVISION_HASH: short if bare_hash else revision, names.POD_TEMPLATE_HASH: short}
