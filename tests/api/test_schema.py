"""Models become structural schemas: types, formats, defaults, required fields and descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from app.api.model import ApiModel, KubeObject
from app.api.schema import Int32, IntOrString, LabelSelector, RawObject, enum, schema_default, structural_schema


class Inner(ApiModel):
    """An inner object."""

    always_serialized = frozenset({"count"})
    schema_keywords = {"x-kubernetes-map-type": "atomic"}  # noqa: RUF012

    count: Int32 = 0
    """How many."""
    needed: str


class Widget(KubeObject):
    """Widgets show everything
    a model can say.

    In two paragraphs."""

    switch: bool = False
    share: IntOrString | None = None
    """A number or ``25%``."""
    policy: Annotated[str, enum("A", "B"), schema_default("A")] = ""
    mode: Literal["x", "y"] = "x"
    selector: LabelSelector | None = None
    template: RawObject | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    anything: Any = None
    inner: Inner | None = None
    """This one describes the use, not the class."""
    inners: list[Inner] = Field(default_factory=list)
    camel_case_name: float = 0


@pytest.fixture(scope="module")
def properties() -> dict[str, Any]:
    return dict(structural_schema(Widget)["properties"])


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        ("camelCaseName", {"type": "number"}),
        (
            "share",
            {
                "description": "A number or `25%`.",
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            },
        ),
        ("policy", {"type": "string", "enum": ["A", "B"], "default": "A"}),
        ("mode", {"type": "string", "enum": ["x", "y"]}),
        ("template", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("anything", {"x-kubernetes-preserve-unknown-fields": True}),
        ("labels", {"type": "object", "additionalProperties": {"type": "string"}}),
    ],
)
def test_a_field_has_the_schema_of_its_type(properties: dict[str, Any], field: str, schema: dict[str, Any]) -> None:
    assert properties[field] == schema


def test_a_class_docstring_describes_the_kind_with_its_paragraphs() -> None:
    schema = structural_schema(Widget)
    assert schema["description"] == "Widgets show everything a model can say.\n\nIn two paragraphs."
    assert schema["properties"]["metadata"] == {"type": "object"}


def test_a_label_selector_is_expanded(properties: dict[str, Any]) -> None:
    selector = properties["selector"]
    assert selector["properties"]["matchExpressions"]["items"]["required"] == ["key", "operator"]
    assert "x-kubernetes-preserve-unknown-fields" not in selector


def test_a_field_description_overrides_its_class(properties: dict[str, Any]) -> None:
    assert properties["inner"]["description"] == "This one describes the use, not the class."
    assert properties["inners"]["items"]["description"] == "An inner object."
    assert properties["inner"]["x-kubernetes-map-type"] == "atomic"


def test_fields_without_a_default_and_fields_always_written_are_required(properties: dict[str, Any]) -> None:
    assert properties["inner"]["required"] == ["count", "needed"]
    assert properties["inner"]["properties"]["count"] == {
        "description": "How many.",
        "format": "int32",
        "type": "integer",
    }


def test_types_without_a_structural_schema_are_refused_at_once() -> None:
    class Broken(KubeObject):
        """Broken."""

        either: list[str] | str = ""

    with pytest.raises(TypeError, match="cannot express the union"):
        structural_schema(Broken)
