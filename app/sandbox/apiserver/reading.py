"""The verbs get and list, with label and field selectors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.kube.fielderrors import FieldError, forbidden, not_supported
from app.kube.selector_query import SelectorError
from app.kube.selectors import EVERYTHING, Selector, parse_query
from app.sandbox.apiserver import golang, status
from app.sandbox.apiserver.forms import AnyForm
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.status import Refusal
from app.sandbox.apiserver.storage import Collection, Core, Entry
from app.sandbox.apiserver.watching import Convert, Watcher, watch_seconds

_NAMES: Final = ("metadata.name", "metadata.namespace")
_EVENT: Final = tuple(
    f"involvedObject.{name}" for name in
    ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)  # fmt: skip
#: Fields that selectors support, by resource, in addition to name and namespace.
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
#: Paths of selectable fields whose path differs from their name.
_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "source": ("source", "component"),
    "status.successful": ("status", "succeeded"),
    "status.podIPs": ("status", "podIP"),
}


#: Boolean fields. They default to false.
_BOOLEANS: Final = frozenset({("spec", "hostNetwork"), ("spec", "unschedulable")})


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: whether the value at ``place`` must equal ``value`` or differ from it."""

    place: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the object matches. A missing field equals the empty string."""
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
    """Parse ``a=b,c!=d`` into (field, value, equal). A backslash escapes the next character."""
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
    """Compile a field selector for a resource. Raises ``Refusal`` for fields that are not selectable."""
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
    """The objects that a list or watch covers: those in one or all namespaces that match both selectors."""

    namespace: str
    labels: Selector
    fields: tuple[FieldTerm, ...]

    @property
    def narrow(self) -> bool:
        """Return whether there is a label or field selector."""
        return bool(self.fields) or not self.labels.empty

    @property
    def prefix(self) -> str:
        """Return the key prefix of the namespace."""
        return f"{self.namespace}/" if self.namespace else ""

    def predicate(self) -> Callable[[Entry], bool] | None:
        """Return a filter for entries, or None if all match."""
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
    """Return the selection in a call's query. Raises ``Refusal`` for invalid selectors."""
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


_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105  # not a secret


def get(core: Core, call: Call) -> Entry:
    """Return one object. Rejects a resourceVersion in the future."""
    _check_not_future(core, call.revision)
    return core.entry(call)


def _check_not_future(core: Core, revision: int) -> None:
    if revision > core.storage.revision:
        raise status.too_large_version(revision, core.storage.revision)


def read_token(token: str) -> tuple[int, str]:
    """Return the version and the first key of a continue token. Rejects invalid tokens."""
    try:
        found = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, start = found["v"], found["rv"], found["start"]
    except (binascii.Error, KeyError, TypeError, ValueError) as error:
        why = _why_no_token(token) or str(error)
        raise status.bad_request(f"invalid continue token: continue key is not valid: {why}") from None
    if version != _TOKEN_VERSION:
        why = f"server does not recognize this encoded version {version}"
        raise status.bad_request(f"invalid continue token: continue key is not valid: {why}")
    return int(revision), str(start)


def _why_no_token(token: str) -> str:
    try:
        return golang.syntax_error(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except binascii.Error:
        return "illegal base64 data"


def _listed_revision(call: Call) -> int:
    """Return the resourceVersion of a list request. Rejects invalid versions."""
    try:
        return call.revision
    except Refusal as refusal:
        raise status.bad_request(f"invalid resource version: {refusal.message}") from None


def make_token(revision: int, start: str) -> str:
    """Return the continue token for a list. ``start`` is the first key of the next page."""
    raw = orjson.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _list_option_errors(call: Call) -> list[FieldError]:
    query = call.query
    errors: list[FieldError] = []
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    at = "resourceVersionMatch"
    if match:
        if not version:
            errors.append(forbidden(at, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if query.get("continue"):
            errors.append(forbidden(at, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            errors.append(not_supported(at, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            errors.append(forbidden(at, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_option_errors(call: Call) -> list[FieldError]:
    query = call.query
    errors: list[FieldError] = []
    match, at = query.get("resourceVersionMatch", ""), "resourceVersionMatch"
    if "sendInitialEvents" in query and match != "NotOlderThan":
        errors.append(forbidden(at, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match:
        if "sendInitialEvents" not in query:
            detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            errors.append(forbidden(at, detail))
        if match != "NotOlderThan":
            errors.append(not_supported(at, match, ("NotOlderThan",)))
        if query.get("continue"):
            errors.append(forbidden(at, "resourceVersionMatch is forbidden when continue is provided"))
    return errors


def _check_options(errors: list[FieldError]) -> None:
    if errors:
        raise status.invalid_kind("meta.k8s.io", "ListOptions", "", errors)


def list_objects(core: Core, call: Call) -> tuple[list[Entry], dict[str, Any]]:
    """Return the entries of one page and the list's metadata."""
    _check_options(_list_option_errors(call))
    selected = selection(call)
    limit = max(call.number("limit") or 0, 0)
    call.number("timeoutSeconds")
    token = call.query.get("continue", "")
    collection = core.collection(call.resource)
    revision, start, total = core.storage.revision, "", True
    if token:
        at, start = read_token(token)
        if _listed_revision(call):
            raise status.bad_request("specifying resource version is not allowed when using continue")
        if at >= 0:
            collection, revision = _snapshot(core, collection, at, start), at
    elif (asked := _listed_revision(call)) and call.query.get("resourceVersionMatch") == "Exact":
        _check_not_future(core, asked)
        collection, revision = _snapshot(core, collection, asked, ""), asked
    else:
        _check_not_future(core, call.revision)
    matches = selected.predicate() if selected.narrow else None
    found: list[Entry] = []
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    rest = collection.select(selected.namespace, start)
    for entry in rest:
        if matches is None or matches(entry):
            if limit and len(found) == limit:
                metadata["continue"] = make_token(revision, f"{found[-1].key}\0")
                total = False
                break
            found.append(entry)
    if not total and not selected.narrow:
        metadata["remainingItemCount"] = 1 + sum(1 for _ in rest)
    return found, metadata


def _snapshot(core: Core, collection: Collection, revision: int, start: str) -> Collection:
    """Return the collection as of a version. Rejects compacted and future versions."""
    _check_not_future(core, revision)
    if revision < collection.compacted:
        if not start:
            raise status.expired("The provided resource version is too old.")
        refusal = status.expired(_CONTINUE_EXPIRED)
        refusal.continue_token = make_token(-1, start)
        raise refusal
    return collection if revision == core.storage.revision else collection.as_of(revision)


def watch(core: Core, call: Call, form: AnyForm, convert: Convert | None = None) -> Watcher:
    """Open a watch. Its first chunk contains everything up to now; later commits follow."""
    _check_options(_watch_option_errors(call))
    selected = selection(call)
    bookmarks, initial = call.flag("allowWatchBookmarks"), call.flag("sendInitialEvents")
    collection = core.collection(call.resource)
    watcher = Watcher(core.storage, collection, selected.predicate(), form, bookmarks=bookmarks, convert=convert)
    seconds = watch_seconds(call.number("timeoutSeconds"), core.rng)
    try:
        revision = call.revision
    except Refusal as refusal:
        raise status.plain_error(refusal.message) from None
    if initial:
        _check_not_future(core, revision)
        watcher.existing(announce_end=True)
    elif revision == 0 and "sendInitialEvents" not in call.query:
        watcher.existing(announce_end=False)
    elif revision and revision < collection.compacted:
        watcher.refuse(status.expired(f"too old resource version: {revision} ({collection.compacted + 1})"))
        return watcher
    elif revision:
        watcher.replay(revision)
    watcher.start(seconds)
    return watcher
