"""What a Pod remembers of its SidecarSets: by which it was injected and updated, and what ran before. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import orjson

from app.api import names
from app.api.gojson import dumps_go
from app.api.jsonvalue import nested_deeper
from app.kube.objects import Pod

#: Sets that a Pod is believed to have been injected by: anybody may annotate his Pod, and each name costs an entry of
#: an index.
MAX_SETS: Final = 256


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    hash: str = ""
    controller_revision: str = ""


class _Before(msgspec.Struct, frozen=True):
    image_id: str = msgspec.field(default="", name="imageID")


class InPlaceState(msgspec.Struct, frozen=True, rename="camel"):
    """SS-99: one set's entry in the state annotation. The ids of containers are a key of ours, which others ignore."""

    last_container_statuses: dict[str, _Before] | None = None
    last_container_ids: dict[str, str] | None = msgspec.field(default=None, name="lastContainerIDs")

    @property
    def before(self) -> Mapping[str, str]:
        """Container → the id of the image it ran before it was changed."""
        return {name: before.image_id for name, before in (self.last_container_statuses or {}).items()}

    def container_before(self, name: str) -> str:
        """The id of the container that ran before, '' where nobody wrote it down."""
        return (self.last_container_ids or {}).get(name, "")


# SS-59: a bare hash instead of the record is the oldest form of the annotation.
_RECORDS = msgspec.json.Decoder(dict[str, _Record | str])
_STATES = msgspec.json.Decoder(dict[str, InPlaceState])
_WORKING = msgspec.json.Decoder(dict[str, str])


def injected_sets(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """SS-56: the names of the sets a Pod was injected by."""
    listed = annotations.get(names.SIDECARSET_INJECTED_LIST)
    if not listed:
        return ()
    parts = listed.split(",", MAX_SETS)[:MAX_SETS]
    return tuple(name for name in (part.strip() for part in parts) if name)


def recorded(annotations: Mapping[str, str], set_name: str, key: str = names.SIDECARSET_HASH) -> tuple[str, str]:
    """Hash and ControllerRevision a Pod records for the set (SS-57); both '' where nothing readable is recorded."""
    text = annotations.get(key)
    if not text:
        return "", ""
    try:
        record = _RECORDS.decode(text).get(set_name, "")
    except (msgspec.DecodeError, RecursionError):
        return "", ""
    return (record, "") if isinstance(record, str) else (record.hash, record.controller_revision)


def in_place_states(pod: Pod) -> Mapping[str, InPlaceState] | None:
    """SS-99: what each set last changed in the Pod; None where the annotation cannot be read."""
    text = pod.metadata.annotations.get(names.SIDECARSET_IN_PLACE_UPDATE_STATE)
    if text is None:
        return {}
    try:
        return _STATES.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def with_state(pod: Pod, set_name: str, digest: str, now: str, changed: Mapping[str, str]) -> str:
    """SS-99, SS-100: the state annotation after the containers ``changed`` (name → new image) of this set were.

    Entries of other sets stay as they are.
    """
    entries = _objects(pod.metadata.annotations.get(names.SIDECARSET_IN_PLACE_UPDATE_STATE, ""))
    mine = entries.get(set_name)
    known = InPlaceState()
    if mine is not None:
        try:
            known = msgspec.convert(mine, InPlaceState)
        except msgspec.ValidationError:
            known = InPlaceState()
    before, ids = dict(known.before), dict(known.last_container_ids or {})
    statuses = {status.name: status for status in pod.status.container_statuses}
    for name in changed:
        status = statuses.get(name)
        before[name] = status.image_id if status is not None else ""
        ids.pop(name, None)
        if status is not None and status.container_id:
            ids[name] = status.container_id
    entry: dict[str, object] = {
        "revision": digest,
        "updateTimestamp": now,
        "lastContainerStatuses": {name: {"imageID": before[name]} for name in sorted(before)},
    }
    if ids:
        entry["lastContainerIDs"] = dict(sorted(ids.items()))
    return dumps_go(dict(sorted({**entries, set_name: entry}.items())))


def _objects(text: str) -> dict[str, object]:
    """The entries of an annotation; one that cannot be read says nothing and is written anew."""
    try:
        found = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return {}
    if nested_deeper(found):
        return {}  # it could not be written again
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)} if isinstance(found, dict) else {}


def working_twins(pod: Pod) -> dict[str, str]:
    """SS-79: hot-upgrade sidecar → the name of the twin that works; empty if nothing readable is recorded."""
    try:
        return _WORKING.decode(pod.metadata.annotations.get(names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER) or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
