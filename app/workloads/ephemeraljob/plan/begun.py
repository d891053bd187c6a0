"""The Pods that a job began with, which keep their place though they vanish (EJ-17). Pure.

Kept in an annotation of the job, written before a container is put into a Pod, and only where ``replicas`` says how
many Pods it may be: elsewhere nobody takes the place of another.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson

from app.kube.objects import Pod

#: All annotations of an object may have 256 KiB; Pods beyond are worked on without a note.
MAX_BYTES: Final = 128 * 1024


class Begun(msgspec.Struct, frozen=True):
    """One Pod. ``succeeded``: whether its containers were seen to."""

    pod: str
    succeeded: bool = False


#: By the Pods' uids, the first one first.
Record = Mapping[str, Begun]
NONE: Final[Record] = {}
_decoder: Final = msgspec.json.Decoder(dict[str, Begun])


def recorded(text: str) -> Record:
    """What a job's annotation says; nothing, if that is not what was written there."""
    if not text or len(text) > MAX_BYTES:
        return NONE
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return NONE


def merged(one: Record, other: Record) -> Record:
    """Both: what was begun stays begun, and what succeeded has."""
    if not other or one is other or one == other:
        return one
    found = {**one}
    for uid, begun in other.items():
        known = found.get(uid)
        found[uid] = begun if known is None or begun.succeeded else known
    return found


def begun_with(record: Record, pods: Iterable[Pod], succeeded: Iterable[str]) -> Record:
    """The record with these Pods in it, as far as there is room, and those noted (by uid) that succeeded; the very same
    one, if it has all of that."""
    new: dict[str, Begun] = {}
    for pod in pods:
        if (uid := pod.metadata.uid) not in record:
            new[uid] = Begun(pod.metadata.name)
    for uid in succeeded:
        known = new.get(uid) or record.get(uid)
        if known is not None and not known.succeeded:
            new[uid] = Begun(known.pod, succeeded=True)
    if not new:
        return record
    found = {**record, **new}
    return found if len(written(found)) <= MAX_BYTES else record


def is_needed(record: Record, saved: Record, begins: Container[str], there: Container[str]) -> bool:
    """Whether the record has to be written before anything else is done. ``saved``: what of it is written already;
    ``begins``: the uids of the Pods that are put into now; ``there``: of all Pods there are. While a Pod is there its
    containers say as much as a note, so that those of a job that was taken over cost no write."""
    if record is saved:
        return False
    return any(
        uid in begins or uid not in there if (known := saved.get(uid)) is None else known.succeeded != one.succeeded
        for uid, one in record.items()
    )


def written(record: Record) -> str:
    """The annotation's value."""
    body: dict[str, Any] = {
        uid: {"pod": one.pod, "succeeded": True} if one.succeeded else {"pod": one.pod} for uid, one in record.items()
    }
    return orjson.dumps(body).decode()
