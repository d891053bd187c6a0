"""Selecting: which objects a list, a watch or a deletion of many is about, by label and field selectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.kube.selectors import EVERYTHING, Selector, SelectorError, parse_query
from app.sandbox.apiserver import status
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.storage import Entry

_NAMES: Final = ("metadata.name", "metadata.namespace")
_EVENT: Final = tuple(
    f"involvedObject.{name}" for name in
    ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)  # fmt: skip
#: Fields a selector may name beside name and namespace, by resource.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "replicationcontrollers": ("status.replicas",),
    "replicasets.apps": ("status.replicas",),
    "jobs.batch": ("status.successful",),
    "events": (*_EVENT, "reason", "reportingComponent", "source", "type"),
    "events.events.k8s.io": (*(name.replace("involvedObject", "regarding") for name in _EVENT), "reason",
                             "reportingController", "type"),
    "certificatesigningrequests.certificates.k8s.io": ("spec.signerName",),
}  # fmt: skip
#: Where a field of a selector stands under another name in the object.
_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "source": ("source", "component"),
    "status.successful": ("status", "succeeded"),
    "status.podIPs": ("status", "podIP"),
}


#: Fields that are false where they are missing.
_BOOLEANS: Final = frozenset({("spec", "hostNetwork"), ("spec", "unschedulable")})


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition: the field at ``place`` has this value, or has not."""

    place: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Whether the object fulfils it; a missing field counts as the empty text."""
        found: Any = obj
        for key in self.place:
            found = found.get(key) if isinstance(found, dict) else None
        if found is None and self.place in _BOOLEANS:
            found = False
        return (_text(found) == self.value) is self.equal


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def parse_fields(text: str) -> list[tuple[str, str, bool]]:
    """``a=b,c!=d`` as (field, value, whether equal); a backslash takes the next character as it stands."""
    terms: list[str] = [""]
    escaped = False
    for char in text:
        if escaped or char == "\\":
            escaped = not escaped
            terms[-1] += char
        elif char == ",":
            terms.append("")
        else:
            terms[-1] += char
    found: list[tuple[str, str, bool]] = []
    for term in terms:
        if not term:
            continue
        for sign, equal in (("!=", False), ("==", True), ("=", True)):
            name, separator, value = term.partition(sign)
            if separator:
                found.append((name, value.replace("\\,", ",").replace("\\=", "=").replace("\\\\", "\\"), equal))
                break
        else:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
    return found


def field_terms(resource: ResourceType, text: str) -> tuple[FieldTerm, ...]:
    """The compiled field selector of a resource. Raises ``Refusal`` for fields that cannot be selected by."""
    known = _FIELDS.get(resource.qualified)
    extra = resource.custom.selectable_fields if resource.custom is not None else ()
    terms = []
    for name, value, equal in parse_fields(text):
        if name not in _NAMES and name not in (known or ()) and name not in extra:
            if known is None:
                raise status.bad_request(
                    f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
                )
            raise status.bad_request(f"field label not supported: {name}")
        terms.append(FieldTerm(_PLACES.get(name) or tuple(name.split(".")), value, equal))
    return tuple(terms)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch is about: objects of a namespace (or all) that both selectors match."""

    namespace: str
    labels: Selector
    fields: tuple[FieldTerm, ...]

    @property
    def narrow(self) -> bool:
        """Whether a selector leaves anything out."""
        return bool(self.fields) or not self.labels.empty

    @property
    def prefix(self) -> str:
        """What the keys of the namespace begin with."""
        return f"{self.namespace}/" if self.namespace else ""

    def predicate(self) -> Callable[[Entry], bool] | None:
        """The test of one entry, or None where all match."""
        prefix, labels, fields = self.prefix, self.labels, self.fields
        if not prefix and not self.narrow:
            return None
        if not fields and labels.empty:
            return lambda entry: entry.key.startswith(prefix)

        def matches(entry: Entry) -> bool:
            if not entry.key.startswith(prefix) or not labels.matches(entry.labels):
                return False
            return not fields or all(term.matches(entry.obj) for term in fields)

        return matches


def selection(call: Call) -> Selection:
    """What a call's query selects. Raises ``Refusal`` where a selector cannot be read."""
    labels = EVERYTHING
    if text := call.query.get("labelSelector", ""):
        try:
            labels = parse_query(text)
        except SelectorError as error:
            raise status.bad_request(str(error)) from None
    fields = call.query.get("fieldSelector", "")
    terms = field_terms(call.resource, fields) if fields else ()
    if call.name:
        terms = (*terms, FieldTerm(("metadata", "name"), call.name, equal=True))
    return Selection(call.namespace, labels, terms)
