"""Decides whether an object may be deleted. Pure.

``judge`` decides directly if the object itself provides enough information. For Namespaces and
CustomResourceDefinitions with ``Cascading``, it returns the lookup to make, and the other functions turn the result
into a decision. [DP-1 … DP-54]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from app.api import names
from app.features.deletionprotection.protected_kinds import Cascading, ProtectedKind
from app.framework.options import gate_is_off
from app.kube.admission import Allowed, Denied, Operation, Review
from app.kube.jsonvalues import as_object
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NAMESPACES, Resource

T = TypeVar("T")

CRD_GATE: Final = "DeletionProtectionForCRDCascadingGate"
PODS_GATE: Final = "DeletionProtectionCountsPods"
_FORBIDDEN_BY: Final = "forbidden by ResourcesProtectionDeletion for"


class Protection(StrEnum):
    """Effective values of the label; they are case-sensitive."""

    ALWAYS = "Always"
    CASCADING = "Cascading"


@dataclass(frozen=True, slots=True)
class Gates:
    """Relevant feature gates: for the label in general, for ``Cascading`` on CRDs, and for the protection of workloads
    that still have Pods. ``known_callers`` means that only API servers can call the webhook. [DP-5, DP-26, DP-53,
    DP-56]"""

    enabled: bool = True
    crd_cascading: bool = False
    pods_count: bool = False
    known_callers: bool = True


@dataclass(frozen=True, slots=True)
class Count:
    """Number of objects found; a lower bound if ``at_least`` is set."""

    number: int
    at_least: bool = False

    #: Whether the number must be hidden from the caller.
    secret: bool = False

    def __str__(self) -> str:
        if self.secret:
            return ""
        return f">={self.number}" if self.at_least else str(self.number)


@dataclass(frozen=True, slots=True)
class NamespaceContents:
    """Lookup of a Namespace's active Pods and, if there are none, of its Bound volume claims. ``uid`` is the UID of the
    Namespace in the review."""

    namespace: str
    uid: str = ""

    @property
    def subject(self) -> tuple[Resource, str]:
        """Return the kind and name of the object to delete."""
        return NAMESPACES, self.namespace

    def __str__(self) -> str:
        return f"Namespace {self.namespace} has active Pods or Bound volume claims"


@dataclass(frozen=True, slots=True)
class CustomResources:
    """Lookup of a kind's custom resources in all namespaces. ``shown`` is the kind's name in messages; ``uid`` is the
    UID of the CustomResourceDefinition in the review."""

    resource: Resource
    shown: str
    uid: str = ""

    @property
    def subject(self) -> tuple[Resource, str]:
        """Return the kind and name of the object to delete. A CustomResourceDefinition is named after its resource and
        group."""
        return CUSTOMRESOURCEDEFINITIONS, f"{self.resource.plural}.{self.resource.group}"

    def __str__(self) -> str:
        return f"there are objects of {self.subject[1]}"


class _UndecodableError(ValueError):
    """A field of the old object has the wrong type."""


def judge(kind: ProtectedKind, review: Review, gates: Gates) -> Allowed | Denied | NamespaceContents | CustomResources:
    """Return the decision on a review, or the lookup to make first.

    The user, the delete options (propagation, grace period, preconditions) and dry run make no difference. [DP-9,
    DP-11]
    """
    # Updates are always allowed, so removing the label unprotects the object at once. Without an old object, there is
    # nothing to decide. [DP-1, DP-2, DP-10]
    if review.operation is not Operation.DELETE or review.subresource or not review.old_object:
        return Allowed()
    if not gates.enabled:  # [DP-5, DP-44]
        return Allowed()
    try:
        return _judge(kind, review.old_object, gates)
    except _UndecodableError as error:  # [DP-7]
        return Denied(f"request.oldObject.{error}", code=400)


def _judge(
    kind: ProtectedKind, old: Mapping[str, Any], gates: Gates
) -> Allowed | Denied | NamespaceContents | CustomResources:
    metadata = _field(old, "metadata", dict, {})
    if metadata.get("deletionTimestamp"):  # [DP-4]
        return Allowed()
    # The label as it was when the deletion was requested. [DP-3]
    value = _field(metadata, "labels", dict, {}, "metadata.").get(names.DELETE_PROTECTION)
    if value == Protection.ALWAYS:  # [DP-8]
        return _refused(refusal_text(Protection.ALWAYS))
    if value != Protection.CASCADING:  # [DP-6]
        return Allowed()
    match kind.cascading:
        case Cascading.REPLICAS:
            return _judge_replicas(old, gates)
        case Cascading.NAMESPACE:
            name = _field(metadata, "name", str, "", "metadata.")
            if not name:  # an empty name would mean all namespaces
                raise _UndecodableError("metadata.name: is required")
            return NamespaceContents(name, _field(metadata, "uid", str, "", "metadata."))
        case Cascading.CUSTOM_RESOURCES:
            if not gates.crd_cascading:  # [DP-26]
                return _refused(gate_is_off(CRD_GATE))
            return _custom_resources(_field(old, "spec", dict, {}), _field(metadata, "uid", str, "", "metadata."))
        case Cascading.NOTHING:  # [DP-29]
            return Allowed()


def _judge_replicas(old: Mapping[str, Any], gates: Gates) -> Allowed | Denied:
    replicas = _field(_field(old, "spec", dict, {}), "replicas", int, 0, "spec.")
    # Desired replicas are counted, not running ones. A missing value counts as 0. [DP-20, DP-21]
    denied = judge_count(Count(replicas), "replicas")
    if denied is None and gates.pods_count:
        # Deleting a workload right after scaling it to 0 would also delete its remaining Pods. [DP-53]
        there = _field(_field(old, "status", dict, {}), "replicas", int, 0, "status.")
        denied = judge_count(Count(there), "active pods")
    return denied or Allowed()


def _custom_resources(spec: Mapping[str, Any], uid: str) -> CustomResources:
    """Return the lookup of the custom resources in their storage version. The denial message shows the kind as
    OpenKruise does. [DP-27, DP-52]"""
    group = _field(spec, "group", str, "", "spec.")
    defined = _field(spec, "names", dict, {}, "spec.")
    kind = _field(defined, "kind", str, "", "spec.names.")
    list_kind = _field(defined, "listKind", str, "", "spec.names.")
    plural = _field(defined, "plural", str, "", "spec.names.")
    version = _storage_version(spec)
    if not (group and plural and version):
        raise _UndecodableError("spec: expected a group, names.plural and a storage version")
    shown = list_kind.removesuffix("List") if list_kind.endswith("List") else kind
    namespaced = spec.get("scope") != "Cluster"
    return CustomResources(Resource(group, version, plural, kind, namespaced), f"{group}/{version}, Kind={shown}", uid)


def _storage_version(spec: Mapping[str, Any]) -> str:
    for index, version in enumerate(_field(spec, "versions", list, [], "spec.")):
        if not isinstance(version, dict):
            raise _UndecodableError(f"spec.versions[{index}]: expected an object")
        if version.get("storage") is True:
            return _field(version, "name", str, "", f"spec.versions[{index}].")
    # In apiextensions.k8s.io/v1beta1, the only version may be in spec.version.
    return _field(spec, "version", str, "", "spec.")


# ---- lookup results


def judge_identity(question: NamespaceContents | CustomResources, live: str) -> Denied | None:
    """Deny a review that is not about the live object. ``live`` is the live object's UID, or '' if it does not exist.

    The API server reviews the object it is about to delete, so it only gets this error if the object has since been
    deleted. A caller who forges a review does not know the UID of an object they may not read. [DP-57]
    """
    if live and live == question.uid:
        return None
    resource, name = question.subject
    message = f'{resource.kind} "{name:.253}" does not match the object of this review: try again'
    return Denied(message, code=409, reason="Conflict")


def not_identified(question: NamespaceContents | CustomResources, error: str) -> Denied:
    """Deny the deletion of an object that cannot be read. [DP-24, DP-28]"""
    return _refused(f"{_FORBIDDEN_BY} get {question.subject[0].plural} error: {error}")


def judge_count(found: Count, what: str) -> Denied | None:
    """Deny the deletion if any of these objects exist. [DP-20, DP-22, DP-23, DP-27]"""
    return _refused(f"{refusal_text(Protection.CASCADING)} and {what} {found}>0") if found.number > 0 else None


def not_listed(what: str, error: str) -> Denied:
    """Deny the deletion because a list failed. ``what`` is "pods" or "pvc". [DP-24]"""
    return _refused(f"{_FORBIDDEN_BY} list {what} error: {error}")


def custom_resources_not_listed(question: CustomResources, error: str, forbidden: bool) -> Denied:
    """Deny the deletion because custom resources could not be listed. If permission is missing, the message says how to
    grant it. [DP-28]"""
    message = f"failed to list CRs of {question.shown}: {error}"
    if forbidden:
        message += (
            f"; grant the manager permission to list {question.subject[1]} (chart value installation.roleListGroups), "
            f"or remove the label {names.DELETE_PROTECTION}"
        )
    return _refused(message)


def refusal_text(value: Protection) -> str:
    """Return the start of every denial message for a label value."""
    return f"{_FORBIDDEN_BY} {names.DELETE_PROTECTION}={value}"


def _refused(message: str) -> Denied:
    return Denied(message, code=403, reason="Forbidden")  # [DP-50]


# ---- ineffective labels


def label_warnings(kinds: Mapping[tuple[str, str], ProtectedKind], review: Review) -> tuple[str, ...]:
    """Return warnings about a label value that protects nothing. ``kinds`` is keyed by group and resource. [DP-54]"""
    labels = as_object(as_object((review.object or {}).get("metadata")).get("labels"))
    value = labels.get(names.DELETE_PROTECTION)
    kind = kinds.get((review.resource.group, review.resource.resource))
    if value is None or kind is None:
        return ()
    effective = [Protection.ALWAYS, *([Protection.CASCADING] if kind.cascading is not Cascading.NOTHING else [])]
    if value in effective:
        return ()
    known = " and ".join(effective)
    return (f"label {names.DELETE_PROTECTION}={value!s:.63} protects nothing here: kind {kind.kind} supports {known}",)


# ---- parsing


def _field(holder: Mapping[str, Any], name: str, wanted: type[T], absent: T, prefix: str = "") -> T:
    """Return a field of this JSON type, or ``absent`` if it is missing or null."""
    value = holder.get(name)
    if value is None:
        return absent
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise _UndecodableError(f"{prefix}{name}: expected {_WORDS[wanted]}, got {_WORDS.get(type(value), 'a number')}")
    return value


_WORDS: Final = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "a boolean"}
