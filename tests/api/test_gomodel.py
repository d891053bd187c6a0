"""Go types derived from models: omitted fields, pointers and fields that are always encoded."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from app.api.gojson import GoTypeError, go_value
from app.api.model import ApiModel
from app.api.schema import Int32, IntOrString, LabelSelector, go_struct, minimum, schema_default


class Part(ApiModel):
    """A part."""

    needed_key: str
    """Required."""
    note: str = ""
    """Optional."""


class Whole(ApiModel):
    """A whole."""

    count: Annotated[Int32, minimum(0)] | None = None
    """A pointer."""
    seconds: Annotated[Int32, minimum(0)] = 0
    """None."""
    share: IntOrString | None = None
    """A number or a percentage."""
    filled: Annotated[bool, schema_default(False)] = Field(default=False, alias="filledIn")
    """Filled in by the API server."""
    mode: Annotated[str, schema_default("All")] = ""
    """A struct whose empty fields the API server must not fill in."""
    parts: list[Part] | None = None
    """A list."""
    labels: dict[str, str] | None = None
    """A map."""
    part: Part | None = None
    """A pointer to a struct."""
    selector: LabelSelector | None = None
    """A pointer to a struct that has its own schema."""


GO = go_struct(Whole, {})


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ({}, {"filledIn": False}),
        ({"count": 0, "seconds": 0}, {"count": 0, "filledIn": False}),
        ({"share": "30%", "seconds": 5}, {"seconds": 5, "share": "30%", "filledIn": False}),
        ({"parts": [{}], "labels": {}}, {"filledIn": False, "parts": [{"neededKey": ""}]}),
        ({"mode": ""}, {"filledIn": False}),
        ({"mode": "All"}, {"filledIn": False, "mode": "All"}),
        ({"selector": {"matchLabels": {}}}, {"filledIn": False, "selector": {}}),
        ({"part": {"note": ""}, "unknown": 1}, {"filledIn": False, "part": {"neededKey": ""}}),
    ],
)
def test_objects_are_printed_as_in_go(given: dict[str, Any], printed: dict[str, Any]) -> None:
    assert go_value(GO, given) == printed


def test_errors_name_the_field() -> None:
    with pytest.raises(GoTypeError, match=r"spec\.parts\[0\]\.note"):
        go_value(GO, {"parts": [{"note": 3}]}, "spec")


class Unknown(ApiModel):
    value: float = 0.0
    """A float."""


def test_an_unknown_type_is_refused_at_declaration() -> None:
    with pytest.raises(TypeError, match="float") as refused:
        go_struct(Unknown, {})
    assert "in field 'value'" in refused.value.__notes__[0]
