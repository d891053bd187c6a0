"""The custom resources that conformance cases share."""

from functools import partial
from typing import Any

from tests.kit import objects
from tests.kit.objects import SCALED, version

GROUP = "conformance.example.com"
definition = partial(objects.definition, group=GROUP)


def fields(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return found | {"required": list(required)} if required else found


TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

_WIDGET = fields(
    spec=fields(
        ("size",),
        size={"type": "integer", "minimum": 1, "maximum": 10},
        colour={"type": "string", "enum": ["red", "green"], "default": "red"},
        name={"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        ratio={"type": "number", "multipleOf": 0.5},
        port={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        tags={"type": "array", "maxItems": 3, "items": TEXT, "x-kubernetes-list-type": "set"},
        labels={"type": "object", "additionalProperties": TEXT, "maxProperties": 2},
        parts={
            "type": "array",
            "items": fields(("name",), name=TEXT, count={"type": "integer", "default": 1}),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        atoms={"type": "array", "items": fields(name=TEXT, count=NUMBER), "x-kubernetes-list-type": "atomic"},
        when={"type": "string", "format": "date-time"},
        on={"type": "boolean"},
        maybe={"type": "string", "nullable": True},
        free=FREE,
        replicas=NUMBER,
        selector=TEXT,
        nested=fields(deep=fields(value=NUMBER)),
    ),
    status=fields(phase=TEXT, replicas=NUMBER, selector=TEXT, conditions={"type": "array", "items": FREE}),
)

_COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "description": "What it looks like."},
    {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
    {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
    {"name": "When", "type": "date", "jsonPath": ".spec.when"},
    {"name": "Parts", "type": "string", "jsonPath": ".spec.parts", "priority": 1},
    {"name": "First", "type": "string", "jsonPath": ".spec.tags[0]"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]

WIDGETS = definition(
    "widgets",
    "Widget",
    version(
        schema=_WIDGET,
        subresources=SCALED,
        additionalPrinterColumns=_COLUMNS,
    ),
    names={"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
)
#: Without subresources: status is an ordinary field.
GADGETS = definition("gadgets", "Gadget", version(schema=fields(spec=FREE, status=FREE)))
#: Two versions with conversion strategy None; cluster-scoped.
GIZMOS = definition(
    "gizmos",
    "Gizmo",
    version("v1beta1", fields(spec=FREE), storage=False, deprecated=True),
    version("v1", fields(spec=FREE)),
    scope="Cluster",
)

BY_PLURAL = {"widgets": WIDGETS, "gadgets": GADGETS, "gizmos": GIZMOS}
