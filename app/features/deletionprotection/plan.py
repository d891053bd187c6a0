"""Deletion protection decided: may this object go? Pure; what it has to know about the cluster it asks for by value.

``judge`` answers at once where the object itself tells. For Namespaces and CustomResourceDefinitions with
``Cascading`` it returns what to look up, and the other functions here turn what was found into the answer.
Rules DP-1 … DP-54.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from app.api import names
from app.features.deletionprotection.table import Cascading, ProtectedKind
from app.framework.options import gate_is_off
from app.kube.admission import Allowed, Denied, Operation, Review
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NAMESPACES, Resource

T = TypeVar("T")

CRD_GATE: Final = "DeletionProtectionForCRDCascadingGate"
PODS_GATE: Final = "DeletionProtectionCountsPods"
_FORBIDDEN_BY: Final = "forbidden by ResourcesProtectionDeletion for"


class Protection(StrEnum):
    """The values of the label that mean something; they are case-sensitive."""

    ALWAYS = "Always"
    CASCADING = "Cascading"


@dataclass(frozen=True, slots=True)
class Gates:
    """The feature gates that matter: whether labels are obeyed at all, ``Cascading`` on CRDs, and whether Pods that are
    still there keep a workload (DP-5, DP-26, DP-53). ``known_callers``: only API servers can ask (DP-56)."""

    enabled: bool = True
    crd_cascading: bool = False
    pods_count: bool = False
    known_callers: bool = True


@dataclass(frozen=True, slots=True)
class Count:
    """How many objects were found; with ``at_least`` there may be more."""

    number: int
    at_least: bool = False

    #: A number that whoever asks is not told.
    secret: bool = False

    def __str__(self) -> str:
        if self.secret:
            return ""
        return f">={self.number}" if self.at_least else str(self.number)


@dataclass(frozen=True, slots=True)
class NamespaceContents:
    """To be looked up: active Pods, and only if there are none, Bound volume claims of the Namespace. ``uid``: the
    Namespace's, as the review has it."""

    namespace: str
    uid: str = ""

    @property
    def subject(self) -> tuple[Resource, str]:
        """The object that is to be deleted: its kind and name."""
        return NAMESPACES, self.namespace


@dataclass(frozen=True, slots=True)
class CustomResources:
    """To be looked up: objects of the defined kind in all namespaces. ``shown`` is how messages name the kind,
    ``uid`` the definition's as the review has it."""

    resource: Resource
    shown: str
    uid: str = ""

    @property
    def subject(self) -> tuple[Resource, str]:
        """The object that is to be deleted: its kind and name. A definition's name says what it defines."""
        return CUSTOMRESOURCEDEFINITIONS, f"{self.resource.plural}.{self.resource.group}"


class _UndecodableError(ValueError):
    """A field of the old object does not hold what it must."""


def judge(kind: ProtectedKind, review: Review, gates: Gates) -> Allowed | Denied | NamespaceContents | CustomResources:
    """The answer to a review of that kind, or what has to be looked up for it.

    Who asks, how (propagation, grace period, preconditions) and whether it is a dry run changes nothing (DP-9, DP-11).
    """
    # DP-1, DP-10: an update is free, so removing the label frees the object at once. DP-2: nothing to judge.
    if review.operation is not Operation.DELETE or review.subresource or not review.old_object:
        return Allowed()
    if not gates.enabled:  # DP-5, DP-44
        return Allowed()
    try:
        return _judge(kind, review.old_object, gates)
    except _UndecodableError as error:  # DP-7
        return Denied(f"request.oldObject.{error}", code=400)


def _judge(
    kind: ProtectedKind, old: Mapping[str, Any], gates: Gates
) -> Allowed | Denied | NamespaceContents | CustomResources:
    metadata = _field(old, "metadata", dict, {})
    if metadata.get("deletionTimestamp"):  # DP-4
        return Allowed()
    # DP-3: the label as it was when the deletion was asked for.
    value = _field(metadata, "labels", dict, {}, "metadata.").get(names.DELETE_PROTECTION)
    if value == Protection.ALWAYS:  # DP-8
        return _refused(refusal_text(Protection.ALWAYS))
    if value != Protection.CASCADING:  # DP-6
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
            if not gates.crd_cascading:  # DP-26
                return _refused(gate_is_off(CRD_GATE))
            return _custom_resources(_field(old, "spec", dict, {}), _field(metadata, "uid", str, "", "metadata."))
        case Cascading.NOTHING:  # DP-29
            return Allowed()


def _judge_replicas(old: Mapping[str, Any], gates: Gates) -> Allowed | Denied:
    replicas = _field(_field(old, "spec", dict, {}), "replicas", int, 0, "spec.")
    # DP-20: what is asked for counts, not what runs. DP-21: absent asks for nothing.
    if replicas > 0:
        return _refused(f"{refusal_text(Protection.CASCADING)} and replicas {replicas}>0")
    if gates.pods_count:
        # DP-53: what is scaled to 0 and deleted in one breath would take with it what is there still.
        there = _field(_field(old, "status", dict, {}), "replicas", int, 0, "status.")
        return judge_pods(Count(there)) or Allowed()
    return Allowed()


def _custom_resources(spec: Mapping[str, Any], uid: str) -> CustomResources:
    """DP-27, DP-52: through the storage version, by resource; the message names the kind as OpenKruise does."""
    group = _field(spec, "group", str, "", "spec.")
    defined = _field(spec, "names", dict, {}, "spec.")
    kind = _field(defined, "kind", str, "", "spec.names.")
    list_kind = _field(defined, "listKind", str, "", "spec.names.")
    plural = _field(defined, "plural", str, "", "spec.names.")
    version = _storage_version(spec)
    if not (group and plural and version):
        raise _UndecodableError("spec: expected a group, names.plural and a version that is stored")
    shown = list_kind.removesuffix("List") if list_kind.endswith("List") else kind
    namespaced = spec.get("scope") != "Cluster"
    return CustomResources(Resource(group, version, plural, kind, namespaced), f"{group}/{version}, Kind={shown}", uid)


def _storage_version(spec: Mapping[str, Any]) -> str:
    for index, version in enumerate(_field(spec, "versions", list, [], "spec.")):
        if not isinstance(version, dict):
            raise _UndecodableError(f"spec.versions[{index}]: expected an object")
        if version.get("storage") is True:
            return _field(version, "name", str, "", f"spec.versions[{index}].")
    return _field(spec, "version", str, "", "spec.")  # apiextensions.k8s.io/v1beta1 could name a single one


# ---- what was found


def judge_identity(question: NamespaceContents | CustomResources, live: str) -> Denied | None:
    """DP-57: the refusal of a review that is not about the object that is there. ``live``: its uid, '' for none.

    The API server judges the object that it is about to delete, so it gets this only where that was deleted meanwhile;
    whoever makes up a review does not know the uid of what he may not read."""
    if live and live == question.uid:
        return None
    resource, name = question.subject
    message = f'{resource.kind} "{name:.253}" is not the object of this review (any more): try again'
    return Denied(message, code=409, reason="Conflict")


def not_identified(question: NamespaceContents | CustomResources, error: str) -> Denied:
    """DP-24, DP-28: an object that cannot be read is kept."""
    return _refused(f"{_FORBIDDEN_BY} get {question.subject[0].plural} error: {error}")


def judge_pods(found: Count) -> Denied | None:
    """DP-22: the refusal because of active Pods, None if there are none."""
    return _refused(f"{refusal_text(Protection.CASCADING)} and active pods {found}>0") if found.number else None


def judge_claims(found: Count) -> Denied | None:
    """DP-23: the refusal because of Bound volume claims, None if there are none."""
    return _refused(f'{refusal_text(Protection.CASCADING)} and "Bound" status pvc {found}>0') if found.number else None


def judge_custom_resources(found: Count) -> Denied | None:
    """DP-27: the refusal because of live custom resources, None if there are none."""
    return _refused(f"{refusal_text(Protection.CASCADING)} and active CRs {found}>0") if found.number else None


def contents_not_listed(what: str, error: str) -> Denied:
    """DP-24: what cannot be looked at counts as there. ``what`` is ``pods`` or ``pvc``."""
    return _refused(f"{_FORBIDDEN_BY} list {what} error: {error}")


def custom_resources_not_listed(question: CustomResources, error: str, forbidden: bool) -> Denied:
    """DP-28: the same for custom resources. D-14: where it is a right that is missing, how to give it."""
    message = f"failed to list CRs of {question.shown}: {error}"
    if forbidden:
        resource = f"{question.resource.plural}.{question.resource.group}"
        message += (
            f"; give the manager the right to list {resource} (chart value installation.roleListGroups), or remove the "
            f"label {names.DELETE_PROTECTION}"
        )
    return _refused(message)


def refusal_text(value: Protection) -> str:
    """How every refusal by a label's value begins."""
    return f"{_FORBIDDEN_BY} {names.DELETE_PROTECTION}={value}"


def _refused(message: str) -> Denied:
    return Denied(message, code=403, reason="Forbidden")  # DP-50


# ---- labels that do nothing


def label_warnings(kinds: Mapping[tuple[str, str], ProtectedKind], review: Review) -> tuple[str, ...]:
    """DP-54: what to tell somebody who writes a label that protects nothing. ``kinds`` by group and resource."""
    metadata = (review.object or {}).get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    value = labels.get(names.DELETE_PROTECTION) if isinstance(labels, dict) else None
    kind = kinds.get((review.resource.group, review.resource.resource))
    if value is None or value == Protection.ALWAYS or kind is None:
        return ()
    if value == Protection.CASCADING and kind.cascading is not Cascading.NOTHING:
        return ()
    known = "Always and Cascading" if kind.cascading is not Cascading.NOTHING else "Always"
    return (f"label {names.DELETE_PROTECTION}={value!s:.63} protects nothing here: kind {kind.kind} knows {known}",)


# ---- reading


def _field(holder: Mapping[str, Any], name: str, wanted: type[T], absent: T, prefix: str = "") -> T:
    """A field of that JSON type; ``absent`` where it is missing or null."""
    value = holder.get(name)
    if value is None:
        return absent
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise _UndecodableError(f"{prefix}{name}: expected {_WORDS[wanted]}, got {_WORDS.get(type(value), 'a number')}")
    return value


_WORDS: Final = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "a boolean"}
