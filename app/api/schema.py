"""The OpenAPI schema and the Go type of a model, both derived from the model."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from app.api.gocore import LABEL_SELECTOR
from app.api.gojson import BOOL, INT32, INT64, STRING, GoField, GoType, list_of, map_of, pointer, struct
from app.api.gojson import INT_OR_STRING as GO_INT_OR_STRING
from app.api.model import INT_OR_STRING, LIST_TYPE, MAP_TYPE, PRESERVE, ApiModel, KubeObject, Schema

# The OpenAPI v3 schema of a model, in the structural form that a CustomResourceDefinition needs.
#
# The schema is derived from the type, and from :class:`Keywords` for anything else (formats, enumerations, defaults
# that the API server fills in). Descriptions are the docstrings of classes and fields.
#
# Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/


@dataclass(frozen=True, slots=True, eq=False)
class Keywords:
    """Schema keywords added to those derived from a type; a value of None removes one."""

    values: Mapping[str, Any]


class SchemaOf(Keywords):
    """The schema of a model, for a field that is read as a raw object. The model is loaded on first use."""

    __slots__ = ("_load",)
    _load: Callable[[], type[ApiModel]]

    def __init__(self, load: Callable[[], type[ApiModel]]) -> None:
        object.__setattr__(self, "_load", load)

    @property
    def values(self) -> Mapping[str, Any]:
        return {**_model(self._load()), PRESERVE: None}


def enum(*values: str) -> Keywords:
    """Allow only these strings, as the API server enforces."""
    return Keywords({"enum": list(values)})


def schema_default(value: Any) -> Keywords:
    """Set a default that the API server fills in before any webhook sees the object."""
    return Keywords({"default": value})


_LABEL_SELECTOR: Final[Schema] = {
    "properties": {
        "matchExpressions": {
            "description": "Requirements on label keys, all of which must be met.",
            "items": {
                "description": "A key, values, and an operator that relates them.",
                "properties": {
                    "key": {"description": "The label key that the requirement applies to.", "type": "string"},
                    "operator": {
                        "description": "Relationship of the key to the values: In, NotIn, Exists or DoesNotExist.",
                        "type": "string",
                    },
                    "values": {
                        "description": "Must not be empty for In and NotIn; must be empty for Exists and DoesNotExist.",
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
            "description": "Labels that must be present with exactly these values.",
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
#: A time as in the API: RFC 3339, in UTC, with whole seconds.
Time: TypeAlias = Annotated[str, Keywords({"format": "date-time"})]
#: A LabelSelector as JSON, which app.kube.selectors compiles.
LabelSelector: TypeAlias = Annotated[dict[str, Any], Keywords(_LABEL_SELECTOR)]
#: An object whose fields are not in the schema.
RawObject: TypeAlias = dict[str, Any]


def label_selector_and(**properties: Schema) -> Keywords:
    """Return the schema of a LabelSelector with additional properties."""
    return Keywords({**_LABEL_SELECTOR, "properties": {**_LABEL_SELECTOR["properties"], **properties}})


def minimum(value: int) -> Keywords:
    """Set the minimum, which the API server enforces."""
    return Keywords({"minimum": value})


def structural_schema(model: type[KubeObject]) -> Schema:
    """Return the ``openAPIV3Schema`` of one version of a kind."""
    schema = _model(model)
    properties = schema["properties"]
    properties["apiVersion"] = {
        "description": "APIVersion defines the versioned schema of this representation.",
        "type": "string",
    }
    properties["kind"] = {"description": "Kind is the REST resource this object represents.", "type": "string"}
    properties["metadata"] = {"type": "object"}
    return schema


def _model(model: type[ApiModel]) -> Schema:
    properties = {
        field.alias or name: _field(field, _description(model, name)) for name, field in model.model_fields.items()
    }
    schema: Schema = {
        "description": _prose(inspect.getdoc(model) or ""),
        "properties": dict(sorted(properties.items())),
    }
    required = sorted(
        field.alias or name
        for name, field in model.model_fields.items()
        if field.is_required() or (model.always_required and name in model.always_serialized)
    )
    if required:
        schema["required"] = required
    schema["type"] = "object"
    return _with(schema, model.schema_keywords)


def _field(field: FieldInfo, description: str) -> Schema:
    schema = _type(field.annotation)
    for hint in field.metadata:
        if isinstance(hint, Keywords):
            schema = _with(schema, hint.values)
    if description:
        # The field's description is more specific than that of its class.
        schema = {**schema, "description": _prose(description)}
    return dict(sorted(schema.items()))


def _description(model: type[ApiModel], name: str) -> str:
    """Return the docstring below a field."""
    bases = (base for base in model.__mro__ if issubclass(base, ApiModel))
    return next(
        (found for base in bases if (found := _field_docs(base.__module__).get(base.__name__, {}).get(name))), ""
    )


@cache
def _field_docs(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings below the fields of the classes of a module.

    Pydantic can read them too, but does so for each class in each process, which takes a fifth of the startup time.
    """
    classes = [
        node for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))) if isinstance(node, ast.ClassDef)
    ]
    return {
        one.name: {
            ast.unparse(field.target): below.value.value
            for field, below in pairwise(one.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        }
        for one in classes
    }


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
        # An object with arbitrary values keeps all its fields.
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
        # The keywords of IntOrString define the type; ``type`` itself must be omitted.
        return {}
    raise TypeError(f"a structural schema cannot express the union of {arguments}")


def _with(schema: Schema, keywords: Mapping[str, Any]) -> Schema:
    merged = {**schema, **keywords}
    return {key: value for key, value in sorted(merged.items()) if value is not None}


def _prose(text: str) -> str:
    """Join source lines into paragraphs, and remove code markup that a terminal would show."""
    paragraphs = inspect.cleandoc(text).replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


# The Go type of one of our models: how OpenKruise unmarshals and marshals the model's fields.
#
# A field that may be None is a pointer. A field is omitted when empty, unless it is required or the API server would
# default it to the empty value. Fields whose Go type is more specific than the model's are listed explicitly.

_BY_ANNOTATION = {
    Int32: INT32,
    Int64: INT64,
    IntOrString: GO_INT_OR_STRING,
    LabelSelector: LABEL_SELECTOR,
    str: STRING,
    bool: BOOL,
}


def go_struct(model: type[ApiModel], named: Mapping[str, GoType]) -> GoType:
    """Return the Go struct of a model. ``named`` maps JSON field names, at any depth, to Go types."""
    return struct(*(_go_field(field, named) for field in model.model_fields.values()))


def _go_field(field: FieldInfo, named: Mapping[str, GoType]) -> GoField:
    name = str(field.alias)
    filled_in = any(isinstance(one, Keywords) and not one.values.get("default", True) for one in field.metadata)
    try:
        go_type = named.get(name) or _go_type(_annotation(field), named)
    except TypeError as error:
        error.add_note(f"in field {name!r}: pass its Go type (see app.api.gocore) in `named`")
        raise
    return GoField(name, go_type, kept=field.is_required() or filled_in)


def _annotation(field: FieldInfo) -> Any:
    """Return the type with the metadata that pydantic moved out of ``Annotated[int, …]``."""
    found: Any = field.annotation
    if field.metadata and get_origin(found) not in (Union, types.UnionType):
        found = Annotated[(found, *field.metadata)]
    return found


def _go_type(annotation: Any, named: Mapping[str, GoType]) -> GoType:
    if annotation in _BY_ANNOTATION:
        return _BY_ANNOTATION[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        # Python flattens Annotated[Int32, minimum(0)]; without the last keyword, the rest may be a known type.
        return _go_type(Annotated[arguments[:-1]] if arguments[2:] else arguments[0], named)
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
