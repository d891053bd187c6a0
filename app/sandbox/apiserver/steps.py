"""The steps of a write, and the attributes that admission sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import orjson

from app.sandbox.apiserver import status
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.managing import Managed
from app.sandbox.apiserver.requests import Call, User
from app.sandbox.apiserver.schemas import Field
from app.sandbox.apiserver.strategies import Strategy

Json: TypeAlias = dict[str, Any]


def keep_outside(call: Call, obj: Json, old: Json) -> None:
    """Restore the parts that the endpoint does not write: everything but the status, or only the status."""
    if call.subresource == "status":
        for key in old.keys() | obj.keys():
            if key not in ("metadata", "status", "kind", "apiVersion"):
                if key in old:
                    obj[key] = old[key]
                else:
                    obj.pop(key)
        _keep_metadata(call, obj, old)
    elif call.resource.has_status and not call.subresource:
        if "status" in old:
            obj["status"] = old["status"]
        else:
            obj.pop("status", None)


def _keep_metadata(call: Call, obj: Json, old: Json) -> None:
    """Restore the metadata that a status write cannot change."""
    metadata, before = obj["metadata"], old["metadata"]
    if call.resource.custom is not None:
        obj["metadata"] = {**before, "resourceVersion": metadata.get("resourceVersion")}
        return
    for name in ("deletionTimestamp", "ownerReferences"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)


def metadata_of(obj: Json) -> Json:
    """Return the metadata of an object. Creates it if missing."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        metadata = obj["metadata"] = {}
    return metadata


def key_of(metadata: Json) -> str:
    """Return an object's key in its collection."""
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def ordered(resource: ResourceType, obj: Json) -> Json:
    """Return the object with kind and apiVersion first: the encoder of lists strips this prefix."""
    api_version = resource.stored_api_version
    found = {"kind": resource.kind, "apiVersion": api_version, "metadata": obj["metadata"]}
    found.update(obj)
    found["kind"], found["apiVersion"] = resource.kind, api_version
    return found


def is_complete(obj: Json, old: Json) -> bool:
    """Return whether an update completes a deletion by removing the last finalizer."""
    before = old["metadata"]
    return (
        bool(before.get("deletionTimestamp"))
        and not obj["metadata"].get("finalizers")
        and not before.get("deletionGracePeriodSeconds")
    )


def check_namespace(resource: ResourceType, metadata: Json, namespace: str) -> None:
    """Set the namespace of an object to that of the request. Rejects an object with a different namespace."""
    given = metadata.get("namespace") or ""
    if not resource.namespaced:
        metadata.pop("namespace", None)
    elif not given:
        metadata["namespace"] = namespace
    elif given != namespace:
        raise status.namespace_mismatch()


def fresh(value: Any) -> Any:
    """Return a deep copy."""
    return orjson.loads(orjson.dumps(value))


@dataclass(slots=True)
class Attributes:
    """A write as admission sees it. Mutating admission may replace ``obj``."""

    operation: str
    resource: ResourceType
    subresource: str
    namespace: str
    name: str
    obj: Json | None
    old: Json | None
    user: User
    dry_run: bool
    options: Json
    warnings: list[str]
    #: Managers of the fields in ``obj`` and ``old``, for webhooks outside this process.
    managed: Managed | None = None
    old_managed: Managed | None = None
    #: The kind posted to a subresource, if it is not the resource's kind.
    kind: Json | None = None


class Admission(Protocol):
    """Mutates or rejects writes before they are committed."""

    async def mutate(self, attributes: Attributes) -> None:
        """Mutate by replacing ``attributes.obj``, or reject the write."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """Reject invalid writes."""
        ...


class Kinds(Protocol):
    """Strategies and schemas of kinds."""

    def strategy(self, resource: ResourceType) -> Strategy:
        """Return the write strategy of the resource."""
        ...

    def schema(self, resource: ResourceType) -> Field | None:
        """Return the type of the resource's objects."""
        ...
