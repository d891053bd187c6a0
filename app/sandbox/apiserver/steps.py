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
    """What the endpoint does not write stays as it is: status, or everything but status."""
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
    """A status write changes of the metadata only what it means to: nothing that others count on."""
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
    """The metadata of an object, made where there are none."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        metadata = obj["metadata"] = {}
    return metadata


def key_of(metadata: Json) -> str:
    """Where an object is in its collection."""
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def ordered(resource: ResourceType, obj: Json) -> Json:
    """The object with its type first, as the bytes of lists count on."""
    api_version = resource.stored_api_version
    found = {"kind": resource.kind, "apiVersion": api_version, "metadata": obj["metadata"]}
    found.update(obj)
    found["kind"], found["apiVersion"] = resource.kind, api_version
    return found


def is_complete(obj: Json, old: Json) -> bool:
    """Whether the last finalizer went away from an object that waits for just that."""
    before = old["metadata"]
    return (
        bool(before.get("deletionTimestamp"))
        and not obj["metadata"].get("finalizers")
        and not before.get("deletionGracePeriodSeconds")
    )


def check_namespace(resource: ResourceType, metadata: Json, namespace: str) -> None:
    """Put an object into the namespace it is written to; refuse another one."""
    given = metadata.get("namespace") or ""
    if not resource.namespaced:
        metadata.pop("namespace", None)
    elif not given:
        metadata["namespace"] = namespace
    elif given != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def uid_mismatch(call: Call, asked: str, found: str) -> str:
    """Why an update does not mean the object there is."""
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{call.resource.key}/{call.key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
    )


def fresh(value: Any) -> Any:
    """A copy that shares nothing."""
    return orjson.loads(orjson.dumps(value))


@dataclass(slots=True)
class Attributes:
    """A write as admission sees it. ``obj`` may be replaced by mutating admission."""

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
    #: Who manages what in ``obj`` and ``old``: remote webhooks are shown it.
    managed: Managed | None = None
    old_managed: Managed | None = None
    #: The kind of what is posted to a subresource, where it is not that of the resource.
    kind: Json | None = None


class Admission(Protocol):
    """What may change or refuse a write before it is committed."""

    async def mutate(self, attributes: Attributes) -> None:
        """Change ``attributes.obj`` (by putting another there), or refuse."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """Refuse what must not be."""
        ...

    def concerns(self, attributes: Attributes) -> bool:
        """Whether there is anything to ask; saves the copies that asking needs."""
        ...


class Kinds(Protocol):
    """What is known of kinds beyond their row: strategies, and the reading of bodies."""

    def strategy(self, resource: ResourceType) -> Strategy:
        """How objects of the resource are written."""
        ...

    def schema(self, resource: ResourceType) -> Field | None:
        """The type of its objects."""
        ...
