"""Objects an attacker might create."""

from typing import Any, Literal

import orjson

Shape = Literal["objects", "lists", "mixed"]


def chain(levels: int, shape: Shape = "objects") -> bytes:
    """Return a value nested this deep."""
    opening, closing = {"objects": (b'{"f:a":', b"}"), "lists": (b"[", b"]"), "mixed": (b'{"f:a":[1,{"x":[]},', b"]}")}[
        shape
    ]
    count = levels // opening.count(b"[") if shape == "mixed" else levels
    return opening * count + b"1" + closing * count


def deep_managed_fields(levels: int, shape: Shape = "objects", **more: Any) -> bytes:
    """Return an object with a deeply nested managedFields between valid fields."""
    metadata = {"name": "deep", "namespace": "shop", "uid": "uid-deep", "resourceVersion": "5", "labels": {"a": "b"}}
    raw = orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "managedFields": ["HERE"]}, **more})
    return raw.replace(b'"HERE"', b'{"manager":"kubectl","fieldsV1":' + chain(levels, shape) + b',"time":null}')
