"""The annotations by which a Pod remembers its SidecarSets: the injected list and the two hash records, to the byte.

OpenKruise's controller and users' tools read these texts, so they are written exactly as Go would: struct fields in
order, map keys sorted. Rules SS-56 … SS-59.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from app.api.gojson import STRING, GoField, GoType, GoTypeError, dumps_go, go_value, list_of, map_of, struct
from app.kube.gotext import shortened
from app.pods.draft import PodRefusedError

# time.Parse(time.RFC3339): fractions are accepted though not in the layout; seconds must be given.
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)


def timestamp(now: datetime) -> str:
    """An aware time as Kubernetes prints it: RFC 3339, UTC, whole seconds."""
    return f"{now.astimezone(UTC).isoformat()[:19]}Z"


def injected_list(present: str, applied: Iterable[str]) -> str:
    """SS-56: the sets applied, merged with those the annotation names already, sorted."""
    known = {name for name in present.split(",") if name} if present else ()
    return ",".join(sorted({*known, *applied}))


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """SS-57: one set's entry in a hash annotation; the time stands between ``head`` and ``tail``."""

    set_name: str
    head: str
    tail: str


def record_entry(set_name: str, digest: str, sidecars: Sequence[str], revision: str) -> RecordEntry:
    """The entry of a set with this hash; ``revision`` is left out while it is empty."""
    fields: dict[str, Any] = {"hash": digest, "sidecarSetName": set_name, "sidecarList": list(sidecars)}
    if revision:
        fields["controllerRevision"] = revision
    return RecordEntry(set_name, f'{dumps_go(set_name)}:{{"updateTimestamp":"', f'",{dumps_go(fields)[1:]}')


def hash_record(kept: Mapping[str, str], entries: Sequence[RecordEntry], now: str) -> str:
    """SS-57: a hash annotation with the members ``kept`` (set name → member) and the entries of the injected sets."""
    members = {**kept, **{entry.set_name: f"{entry.head}{now}{entry.tail}" for entry in entries}}
    return f"{{{','.join([members[name] for name in sorted(members)])}}}"


def kept_members(pod: str, key: str, text: str) -> Mapping[str, str]:
    """SS-59: the members a hash annotation has already (set name → ``"name":{…}`` as Go writes it); both forms are
    read.

    ``pod`` is ``namespace/name`` for the message. Raises PodRefusedError if it is neither form.
    """
    try:
        value = orjson.loads(text)
        # The first release of OpenKruise wrote set name → hash.
        if isinstance(value, dict) and value and all(isinstance(item, str) for item in value.values()):
            value = {name: {"hash": digest, "sidecarSetName": name} for name, digest in value.items()}
        entries = go_value(_RECORD, value) or {}
        return {name: f"{dumps_go(name)}:{dumps_go(entry)}" for name, entry in entries.items()}
    except (ValueError, GoTypeError) as error:
        reason = shortened(str(error).removeprefix(": "))  # of the whole, which has no path
        raise PodRefusedError(
            f"pod({pod}) invalid annotations[{key}] value {shortened(text)}, unmarshal failed: {reason}; remove the "
            "annotation",
            400,
        ) from error


def _read_time(value: Any, path: str) -> str | None:
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise GoTypeError(f"{path}: {value!r} is not an RFC 3339 time")
    try:
        # Python knows microseconds, Go nanoseconds; whole seconds are printed.
        moment = datetime.fromisoformat(re.sub(r"[.,]\d+", "", value)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise GoTypeError(f"{path}: {error}") from error
    return None if moment == _ZERO_TIME else timestamp(moment)


#: metav1.Time: the zero time is printed as null.
_TIME = GoType(_read_time, lambda: None, lambda _: False)
_RECORD = map_of(
    struct(
        GoField("updateTimestamp", _TIME, kept=True),
        GoField("hash", STRING, kept=True),
        GoField("sidecarSetName", STRING, kept=True),
        GoField("sidecarList", list_of(STRING), kept=True),
        GoField("controllerRevision", STRING),
    )
)
