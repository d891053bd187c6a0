"""What is derived from a model: its OpenAPI schema and the Go type that reads the same JSON."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from app.api.gojson import BOOL, INT32, INT64, STRING, GoField, GoType, list_of, map_of, pointer, struct
from app.api.gojson import INT_OR_STRING as GO_INT_OR_STRING
from app.api.model import INT_OR_STRING, LIST_TYPE, MAP_TYPE, PRESERVE, ApiModel, KubeObject, Schema

# The OpenAPI v3 schema of a model, in the structural form a CustomResourceDefinition needs.
#
# What the type says becomes the schema; what it cannot say (formats, enumerations, defaults that the API server itself
# fills in) stands beside it as :class:`Keywords`. Descriptions are the docstrings of classes and fields.
#
# Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/


@dataclass(frozen=True, slots=True, eq=False)
class Keywords:
    """Schema keywords added to those that follow from a type; a value of None takes one away."""

    values: Mapping[str, Any]


class SchemaOf(Keywords):
    """The schema of a model, for a field that is read as a raw object. The model is loaded when it is asked for."""

    __slots__ = ("_load",)
    _load: Callable[[], type[ApiModel]]

    def __init__(self, load: Callable[[], type[ApiModel]]) -> None:
        object.__setattr__(self, "_load", load)

    @property
    def values(self) -> Mapping[str, Any]:
        """The keywords of the model's schema."""
        return {**_model(self._load()), PRESERVE: None}


def enum(*values: str) -> Keywords:
    """Only these texts. The API server itself refuses others."""
    return Keywords({"enum": list(values)})


def schema_default(value: Any) -> Keywords:
    """What the API server fills in where the field is missing, before any webhook sees the object."""
    return Keywords({"default": value})


_LABEL_SELECTOR: Final[Schema] = {
    "properties": {
        "matchExpressions": {
            "description": "Requirements on label keys, all of which must hold.",
            "items": {
                "description": "A key, an operator, and values that relate them.",
                "properties": {
                    "key": {"description": "The label key the requirement applies to.", "type": "string"},
                    "operator": {"description": "In, NotIn, Exists or DoesNotExist.", "type": "string"},
                    "values": {
                        "description": "With In and NotIn at least one value, with Exists and DoesNotExist none.",
                        "items": {"type": "string"},
                        "type": "array",
                        LIST_TYPE: "atomic",
                    },
                },
                "required": ["key", "operator"],
                "type": "object",
            },
            "type": "array",
            LIST_TYPE: "atomic",
        },
        "matchLabels": {
            "additionalProperties": {"type": "string"},
            "description": "Labels that must be there with exactly these values.",
            "type": "object",
        },
    },
    "type": "object",
    MAP_TYPE: "atomic",
    PRESERVE: None,
}

Int32: TypeAlias = Annotated[int, Keywords({"format": "int32"})]
Int64: TypeAlias = Annotated[int, Keywords({"format": "int64"})]
IntOrString: TypeAlias = Annotated[
    int | str, Keywords({"anyOf": [{"type": "integer"}, {"type": "string"}], INT_OR_STRING: True})
]
#: A time as the API writes it: RFC 3339, in UTC, with whole seconds.
Time: TypeAlias = Annotated[str, Keywords({"format": "date-time"})]
#: A LabelSelector in its JSON form, as app.kube.selectors compiles it.
LabelSelector: TypeAlias = Annotated[dict[str, Any], Keywords(_LABEL_SELECTOR)]
#: An object whose fields the schema does not name.
RawObject: TypeAlias = dict[str, Any]


def label_selector_and(**properties: Schema) -> Keywords:
    """The schema of a LabelSelector that can also say something else."""
    return Keywords({**_LABEL_SELECTOR, "properties": {**_LABEL_SELECTOR["properties"], **properties}})


def minimum(value: int) -> Keywords:
    """No smaller number. The API server itself refuses others."""
    return Keywords({"minimum": value})


def structural_schema(model: type[KubeObject]) -> Schema:
    """The ``openAPIV3Schema`` of one version of a kind."""
    schema = _model(model)
    properties = schema["properties"]
    properties["apiVersion"] = {"description": "Group and version of this representation.", "type": "string"}
    properties["kind"] = {"description": "The kind of object this is.", "type": "string"}
    properties["metadata"] = {"type": "object"}
    return schema


def _model(model: type[ApiModel]) -> Schema:
    properties = {field.alias or name: _field(field) for name, field in model.model_fields.items()}
    schema: Schema = {
        "description": _prose(inspect.getdoc(model) or ""),
        "properties": dict(sorted(properties.items())),
    }
    required = sorted(
        field.alias or name
        for name, field in model.model_fields.items()
        if field.is_required() or (model.always_required and name in model.always_serialised)
    )
    if required:
        schema["required"] = required
    schema["type"] = "object"
    return _with(schema, model.schema_keywords)


def _field(field: FieldInfo) -> Schema:
    schema = _type(field.annotation)
    for hint in field.metadata:
        if isinstance(hint, Keywords):
            schema = _with(schema, hint.values)
    if field.description:
        # The field says more about this use than the class it is made of.
        schema = {**schema, "description": _prose(field.description)}
    return dict(sorted(schema.items()))


def _type(annotation: Any) -> Schema:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        schema = _type(arguments[0])
        for hint in arguments[1:]:
            if isinstance(hint, Keywords):
                schema = _with(schema, hint.values)
        return schema
    if origin in (Union, types.UnionType):
        return _union([argument for argument in arguments if argument is not types.NoneType])
    if origin is list:
        return {"items": _type(arguments[0]), "type": "array"}
    if origin is dict:
        # An object of anything is an object whose fields are all kept.
        fields = {PRESERVE: True} if arguments[1] is Any else {"additionalProperties": _type(arguments[1])}
        return {**fields, "type": "object"}
    if origin is Literal:
        return {"enum": list(arguments), "type": "string"}
    if inspect.isclass(annotation) and issubclass(annotation, ApiModel):
        return _model(annotation)
    return dict(_SIMPLE[annotation])


_SIMPLE: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    Any: {PRESERVE: True},
}


def _union(arguments: list[Any]) -> Schema:
    if len(arguments) == 1:
        return _type(arguments[0])
    if set(arguments) == {int, str}:
        # IntOrString's keywords say the rest: the type itself must not be named.
        return {}
    raise TypeError(f"a structural schema cannot express the union of {arguments}")


def _with(schema: Schema, keywords: Mapping[str, Any]) -> Schema:
    merged = {**schema, **keywords}
    return {key: value for key, value in sorted(merged.items()) if value is not None}


def _prose(text: str) -> str:
    """Source lines joined to paragraphs, code marks as a terminal reads them."""
    paragraphs = inspect.cleandoc(text).replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


# The Go type of a model of ours: how OpenKruise reads and prints what the model's fields say.
#
# A field is a pointer where the model knows None, is left out where it is empty, and is printed in any case where it
# is required or where the API server would put the empty value back, as that is the schema's default. Fields whose Go
# type is richer than the model's are named.

_BY_ANNOTATION = {Int32: INT32, Int64: INT64, IntOrString: GO_INT_OR_STRING, str: STRING, bool: BOOL}


def go_struct(model: type[ApiModel], named: Mapping[str, GoType]) -> GoType:
    """The struct of a model. ``named``: Go types by the fields' names in JSON, wherever they stand."""
    return struct(*(_go_field(field, named) for field in model.model_fields.values()))


def _go_field(field: FieldInfo, named: Mapping[str, GoType]) -> GoField:
    name = str(field.alias)
    filled_in = any(isinstance(one, Keywords) and not one.values.get("default", True) for one in field.metadata)
    go_type = named.get(name) or _go_type(_annotation(field), named)
    return GoField(name, go_type, kept=field.is_required() or filled_in)


def _annotation(field: FieldInfo) -> Any:
    """With what pydantic has taken out of it: ``Annotated[int, …]`` of one field stands in two places."""
    found: Any = field.annotation
    if field.metadata and get_origin(found) not in (Union, types.UnionType):
        found = Annotated[(found, *field.metadata)]
    return found


def _go_type(annotation: Any, named: Mapping[str, GoType]) -> GoType:
    if annotation in _BY_ANNOTATION:
        return _BY_ANNOTATION[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _go_type(arguments[0], named)
    if origin in (Union, types.UnionType):
        (one,) = (argument for argument in arguments if argument is not type(None))
        found = _go_type(one, named)
        return found if get_origin(one) in (list, dict) else pointer(found)
    if origin is list:
        return list_of(_go_type(arguments[0], named))
    if origin is dict:
        return map_of(_go_type(arguments[1], named))
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        return go_struct(annotation, named)
    raise TypeError(f"no Go type is known for {annotation!r}")
