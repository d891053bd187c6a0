"""Base classes of the models of our kinds, and the keywords of their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

# What every model of a kind is built from: the base class, metadata, and the object itself.
#
# A model names the fields we read; the docstring under a field is its description in the CRD. Whatever else an object
# carries is kept and given back by :meth:`ApiModel.to_dict`, so that a newer client's fields survive us.


class ApiModel(BaseModel):
    """A part of an object. Fields are snake_case here and camelCase in JSON; instances are immutable."""

    model_config = ConfigDict(
        # A process pays for the kinds it meets, when it meets them: building all models took a sixth of the start.
        defer_build=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
    )

    #: Fields (by their names here) that are written even when they were never set, as Go does without omitempty.
    always_serialised: ClassVar[frozenset[str]] = frozenset()
    #: Whether the schema asks for these fields, as that of a Go type does unless it says that they are optional.
    always_required: ClassVar[bool] = True
    #: Keywords of this object's schema beyond what its fields say (see app.api.schema).
    schema_keywords: ClassVar[Mapping[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        # As in Go: a null leaves the field at its zero value.
        if isinstance(data, dict) and None in data.values():
            return {key: value for key, value in data.items() if value is not None}
        return data

    @model_validator(mode="after")
    def _keep_always_serialised(self) -> Self:
        self.model_fields_set.update(self.always_serialised)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The JSON object again: fields as they were given, nothing invented, nothing lost."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @property
    def unknown(self) -> dict[str, Any]:
        """What the object carries beyond the fields named here, by JSON key."""
        return self.model_extra or {}


class OwnerReference(ApiModel):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(ApiModel):
    """Name, labels and the API server's bookkeeping. Times stay text, as the API has them."""

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


class KubeObject(ApiModel):
    """An object of one of our kinds in one version."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def deleting(self) -> bool:
        """Whether deletion has begun."""
        return bool(self.metadata.deletion_timestamp)

    def is_but_for_status(self, other: KubeObject) -> bool:
        """Whether ``other``, an earlier or later state, differs by its status at most: each other change shows in the
        metadata, if only by the generation."""
        version = other.metadata.resource_version
        return self.metadata.model_copy(update={"resource_version": version}) == other.metadata


Schema: TypeAlias = dict[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
