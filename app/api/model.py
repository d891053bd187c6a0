"""Base classes for the models of our kinds, and the keywords of their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from app.kube.jsonvalues import UnreadableError
from app.kube.objects import Metadata
from app.kube.store import Change

# Base classes of all models: parts of an object, metadata, and the object itself.
#
# A model declares the fields that we read; the docstring below a field is its description in the CRD. All other fields
# of an object are kept and returned by :meth:`ApiModel.to_dict`, so that fields of newer clients are not lost.


class ApiModel(BaseModel):
    """A part of an object. Fields are snake_case in Python and camelCase in JSON; instances are immutable."""

    model_config = ConfigDict(
        # Models are built on first use: building all of them took a sixth of the startup time.
        defer_build=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        frozen=True,
        strict=True,
    )

    #: Fields (by Python name) that are written even if never set, as in Go without omitempty.
    always_serialized: ClassVar[frozenset[str]] = frozenset()
    #: Whether the schema requires the fields in ``always_serialized``, as for a Go type without the optional marker.
    always_required: ClassVar[bool] = True
    #: Schema keywords of this object beyond those of its fields (see app.api.schema).
    schema_keywords: ClassVar[Mapping[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        # As in Go, a null leaves the field at its zero value.
        if isinstance(data, dict) and None in data.values():
            return {key: value for key, value in data.items() if value is not None}
        return data

    @model_validator(mode="after")
    def _keep_always_serialized(self) -> Self:
        self.model_fields_set.update(self.always_serialized)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object with its fields as they were given, without additions or losses."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @property
    def unknown(self) -> dict[str, Any]:
        """Fields of the object that the model does not define, by JSON key."""
        return self.model_extra or {}


class OwnerReference(ApiModel):
    """An owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(ApiModel):
    """Name, labels and other metadata. Times remain strings, as in the API."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[OwnerReference] = Field(default_factory=list)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object (``controller: true``), if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


#: Maximum number of objects in a status. An API server accepts half a million empty ones, which take up to a kilobyte
#: of memory each; real objects reach its size limit sooner.
MAX_STATUS_OBJECTS: Final = 40_000


class _WithStatus(msgspec.Struct):
    status: msgspec.Raw = msgspec.Raw(b"{}")


_with_status: Final = msgspec.json.Decoder(_WithStatus).decode


class KubeObject(ApiModel):
    """An object of one of our kinds in one version."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Return the object for a cache, without managedFields: they take many times their size in memory, and the API
        server keeps them if an update lacks them.

        Raises ValueError or ``msgspec.MsgspecError`` if it cannot be read, or if its status, which no webhook checks,
        would take too much memory.
        """
        if raw.count(b"{") > MAX_STATUS_OBJECTS and bytes(_with_status(raw).status).count(b"{") > MAX_STATUS_OBJECTS:
            raise UnreadableError(f"status: has more than {MAX_STATUS_OBJECTS} objects")
        found = cls.model_validate_json(raw)
        found.metadata.unknown.pop("managedFields", None)
        found.metadata.model_fields_set.discard("managedFields")
        return found

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def deleting(self) -> bool:
        return bool(self.metadata.deletion_timestamp)

    def has_spec_of(self, other: KubeObject | Metadata) -> bool:
        """Return whether both are the same object with the same spec, by UID and generation."""
        mine, theirs = self.metadata, other.metadata
        return (mine.uid, mine.generation) == (theirs.uid, theirs.generation)

    def is_but_for_status(self, other: KubeObject) -> bool:
        """Return whether ``other``, an earlier or later state, differs at most in its status. Any other change is
        visible in the metadata, at least in the generation."""
        version = other.metadata.resource_version
        return self.metadata.model_copy(update={"resource_version": version}) == other.metadata


def is_status_change(change: Change[Any]) -> bool:
    """Return whether an update of one of our objects changed only its status."""
    return change.old is not None and change.new is not None and change.new.is_but_for_status(change.old)


Schema: TypeAlias = dict[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
