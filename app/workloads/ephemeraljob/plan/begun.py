"""The Pods that a job began with, which keep their place though they vanish (EJ-17). Pure.

Kept in an annotation of the job, written before a container is put into a Pod, and only where ``replicas`` says how
many Pods it may be: elsewhere nobody takes the place of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson

from app.api import names
from app.api.ephemeraljob import EphemeralJob

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


def recorded(job: EphemeralJob) -> Record:
    """What the job's annotation says; nothing, if that is not what was written there."""
    text = job.metadata.annotations.get(names.EPHEMERAL_JOB_BEGUN, "")
    if not text or len(text) > MAX_BYTES:
        return NONE
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return NONE


def merged(one: Record, other: Record) -> Record:
    """Both: what was begun stays begun, and what succeeded has."""
    if not other or one == other:
        return one
    found = {**one}
    for uid, begun in other.items():
        known = found.get(uid)
        found[uid] = begun if known is None or begun.succeeded else known
    return found


def begun_with(record: Record, pods: Iterable[tuple[str, str]], succeeded: Iterable[str]) -> Record:
    """The record with these Pods (uid, name) in it, as far as there is room, and those that succeeded noted."""
    found = dict(record)
    for uid, pod in pods:
        if uid not in found:
            found[uid] = Begun(pod)
    for uid in succeeded:
        if uid in found and not found[uid].succeeded:
            found[uid] = Begun(found[uid].pod, succeeded=True)
    if found == record:
        return record
    return found if len(written(found)) <= MAX_BYTES else record


def written(record: Record) -> str:
    """The annotation's value."""
    body: dict[str, Any] = {
        uid: {"pod": one.pod, "succeeded": True} if one.succeeded else {"pod": one.pod} for uid, one in record.items()
    }
    return orjson.dumps(body).decode()
