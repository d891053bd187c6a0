"""The Go type of a model of ours: how OpenKruise reads and prints what the model's fields say.

A field is a pointer where the model knows None, is left out where it is empty, and is printed in any case where it is
required or where the API server would put the empty value back, as that is the schema's default. Fields whose Go type
is richer than the model's are named.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from app.api.gojson import BOOL, INT32, INT64, INT_OR_STRING, STRING, GoField, GoType, list_of, map_of, pointer, struct
from app.api.model import ApiModel
from app.api.schema import Int32, Int64, IntOrString, Keywords

_BY_ANNOTATION = {Int32: INT32, Int64: INT64, IntOrString: INT_OR_STRING, str: STRING, bool: BOOL}


def go_struct(model: type[ApiModel], named: Mapping[str, GoType]) -> GoType:
    """The struct of a model. ``named``: Go types by the fields' names in JSON, wherever they stand."""
    return struct(*(_field(field, named) for field in model.model_fields.values()))


def _field(field: FieldInfo, named: Mapping[str, GoType]) -> GoField:
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
