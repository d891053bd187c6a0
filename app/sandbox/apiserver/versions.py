"""Versions: objects are stored in one version, and shown and written in any that is served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from app.sandbox.apiserver.autoscalerviews import full, simple
from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.eventviews import core_event, new_event
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.storage import Entry
from app.sandbox.apiserver.watching import Convert

Json: TypeAlias = dict[str, Any]
#: Asks a webhook to convert objects of a resource to an apiVersion.
Converter: TypeAlias = Callable[[ResourceType, Sequence[Json], str], Awaitable[list[Json]]]


class Versions:
    """Converts between the stored version of an object and the one that is asked for."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: Set where webhooks can be called.
        self.webhook: Converter | None = None

    async def shown(self, resource: ResourceType, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries in the version of ``resource``."""
        wanted = resource.api_version
        missing = [
            entry
            for entry in entries
            if entry.api_version != wanted and (entry.converted is None or wanted not in entry.converted)
        ]
        if missing:
            objects = await self.convert(resource, [entry.obj for entry in missing], wanted)
            for entry, obj in zip(missing, objects, strict=True):
                shown = Entry(entry.key, obj, entry.revision, entry.managed)
                entry.converted = {**(entry.converted or {}), wanted: shown}
        return [
            entry if entry.api_version == wanted else (entry.converted or {}).get(wanted, entry) for entry in entries
        ]

    async def stored(self, resource: ResourceType, obj: Json) -> Json:
        """An object of ``resource`` in the version it is stored in."""
        if resource.api_version == resource.stored_api_version:
            return obj
        return (await self.convert(resource, [obj], resource.stored_api_version))[0]

    def watched(self, resource: ResourceType) -> Convert | None:
        """How a watch brings entries into the version of ``resource``; None where they are stored in it."""
        collection = self._core.collection(resource)
        alike = resource.api_version == resource.stored_api_version
        if alike and all(entry.api_version == resource.api_version for entry in collection.objects.values()):
            return None

        async def convert(entries: Sequence[Entry]) -> Sequence[Entry]:
            return await self.shown(resource, entries)

        return convert

    async def convert(self, resource: ResourceType, objects: Sequence[Json], wanted: str) -> list[Json]:
        """The objects in the version that is wanted, each with what only the server sets as it was."""
        if resource.key == "events":
            view = new_event if wanted == "events.k8s.io/v1" else core_event
            return [view(obj) for obj in objects]
        if resource.qualified == "horizontalpodautoscalers.autoscaling":
            show = full if wanted == "autoscaling/v2" else simple
            return [obj if obj.get("apiVersion", resource.api_version) == wanted else show(obj) for obj in objects]
        if resource.custom is None or resource.custom.conversion is None or self.webhook is None:
            return [{**obj, "apiVersion": wanted} for obj in objects]
        differing = [obj for obj in objects if obj.get("apiVersion", resource.api_version) != wanted]
        converted = iter(await self.webhook(resource, differing, wanted) if differing else [])
        return [
            _merged_metadata(obj, next(converted)) if obj.get("apiVersion", resource.api_version) != wanted else obj
            for obj in objects
        ]


def _merged_metadata(old: Mapping[str, Any], new: Json) -> Json:
    """A conversion may change labels and annotations only; everything else of the metadata stays."""
    metadata = dict(old.get("metadata") or {})
    for part in ("labels", "annotations"):
        metadata.pop(part, None)
        if found := (new.get("metadata") or {}).get(part):
            metadata[part] = found
    return {**new, "metadata": metadata}
