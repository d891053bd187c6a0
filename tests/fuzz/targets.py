"""All targets, from the registries: new kinds, webhooks and decoders are included automatically."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

from app.admission.registry import Registry
from app.framework.watched import Watched, merged
from app.kube import objects as kube_objects
from app.kube.admission import Operation
from app.kube.resources import Resource
from app.manager.features import features, kinds
from tests.admission.recorded import DATA
from tests.fuzz import objects

#: The depth to which an object is filled in if its schema is recursive.
_DEPTH: Final = 12
_NAMES: Final = ("sample", "web", "a", "x-1")


class Question(NamedTuple):
    path: str
    operation: Operation
    group: str
    version: str
    plural: str
    subresource: str


class Conversion(NamedTuple):
    """A conversion from one version of a kind to another."""

    api_version: str
    desired: str
    schema: Mapping[str, Any]
    kind: str


def questions(registry: Registry) -> tuple[Question, ...]:
    """Return the rules of all webhooks of a registry; wildcards stand for Pods."""
    found = []
    for webhook in registry.webhooks:
        for rule in webhook.rules:
            for operation in rule.operations:
                for group in rule.groups:
                    for version in rule.versions:
                        for resource in rule.resources:
                            plural, _, subresource = resource.partition("/")
                            found.append(Question(webhook.path, operation, group, version, plural, subresource))
    return tuple(dict.fromkeys(found))


def conversions() -> tuple[Conversion, ...]:
    """Return every pair of versions of every kind, equal versions included."""
    return tuple(
        Conversion(f"{kind.group}/{one.name}", f"{kind.group}/{other.name}", one.schema, kind.kind)
        for kind in kinds()
        for one in kind.versions
        for other in kind.versions
    )


def decoders() -> dict[str, Callable[[bytes], Any]]:
    """Return every decoder of API server objects; each also computes the indexes of its cache."""
    plain = {name: value for name, value in vars(kube_objects).items() if name.startswith("decode_")}
    return {
        **{name: value for name, value in plain.items() if callable(value)},
        **{f"cache of {one.name}": _indexed(one) for one in watched()},
    }


@cache
def watched() -> tuple[Watched[Any], ...]:
    """Return all caches that any process of the manager fills."""
    parts = (part for one in features() for part in (*one.controllers, *one.background, *one.admission, *one.provides))
    return tuple(merged(one for part in parts for one in part.watched).values())


def _indexed(one: Watched[Any]) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        try:
            obj = one.decode(raw)
        except UnicodeError as error:
            raise ValueError(str(error)) from error
        if one.keep is None or one.keep(obj):
            for index in one.indexes.values():
                list(index(obj))
        return obj

    return read


@cache
def _recorded() -> Mapping[tuple[str, str, str], tuple[objects.Json, ...]]:
    """Return the objects that OpenKruise stored, by group, version and kind."""
    found: dict[tuple[str, str, str], list[objects.Json]] = {}
    for path in sorted(DATA.glob("samples-*.json")):
        for case in json.loads(path.read_text("utf-8")):
            held = (case.get(part) for part in ("manifest", "created", "v1alpha1", "v1beta1"))
            for obj in held:
                if isinstance(obj, dict) and obj.get("kind"):
                    group, _, version = str(obj["apiVersion"]).rpartition("/")
                    found.setdefault((group, version, obj["kind"]), []).append(obj)
    return {key: tuple(objs) for key, objs in found.items()}


def recorded(random: Random, resource: Resource, version: str) -> objects.Json | None:
    """Return an object of a kind that OpenKruise stored, with the fields that the API server adds."""
    known = _recorded().get((resource.group, version, resource.kind))
    if not known:
        return None
    obj = objects.copied(random.choice(known))
    obj["metadata"] = {"uid": "u", "resourceVersion": "7", "generation": 1, **obj["metadata"]}
    return obj


_GOOD: Final = {
    ("", "v1", "pods"): objects.pod,
    ("apps.kruise.io", "v1beta1", "sidecarsets"): objects.sidecar_set,
    ("apps.kruise.io", "v1alpha1", "sidecarsets"): lambda: objects.sidecar_set("v1alpha1"),
    ("apps.kruise.io", "v1beta1", "clonesets"): objects.clone_set,
    ("apps.kruise.io", "v1alpha1", "clonesets"): lambda: objects.clone_set("v1alpha1"),
}


def good(random: Random, asked: Question) -> objects.Json:
    """Return an object that is valid according to its schema."""
    make = _GOOD.get((asked.group, asked.version, asked.plural))
    if make is not None and random.random() < 0.7:
        return make()
    for kind in kinds():
        version = kind.version(f"{asked.group}/{asked.version}") if kind.plural == asked.plural else None
        if version is not None:
            known = recorded(random, kind.resource(), asked.version) if random.random() < 0.7 else None
            if known is not None:
                return known
            return filled(random, version.schema, f"{asked.group}/{asked.version}", kind.kind)
    if make is not None:
        return make()
    api_version = f"{asked.group}/{asked.version}".lstrip("/")
    labels = {"policy.kruise.io/delete-protection": random.choice(("Always", "Cascading", "x"))}
    meta = {"name": "sample", "namespace": "default", "labels": labels}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "group": "apps.example.com", "names": {}}
    return {"apiVersion": api_version, "kind": asked.plural, "metadata": meta, "spec": spec, "status": {}}


def filled(random: Random, schema: Mapping[str, Any], api_version: str, kind: str) -> objects.Json:
    """Return an object of a structural schema with most of its fields set."""
    obj = _value(random, schema, 0)
    meta = {"name": random.choice(_NAMES), "namespace": "default", "labels": {"app": "web"}, "annotations": {}}
    return {**(obj if isinstance(obj, dict) else {}), "apiVersion": api_version, "kind": kind, "metadata": meta}


def _value(random: Random, schema: Mapping[str, Any], depth: int) -> Any:
    if "enum" in schema:
        return random.choice(schema["enum"])
    if schema.get("x-kubernetes-int-or-string") or "anyOf" in schema:
        return random.choice((0, 1, 3, "1", "20%", "100%", "-5%"))
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        part = 0.9 if depth < 3 else 0.4
        required = schema.get("required", ())
        obj = {
            name: _value(random, inner, depth + 1)
            for name, inner in properties.items()
            if depth < _DEPTH and (name in required or random.random() < part)
        }
        more = schema.get("additionalProperties")
        if isinstance(more, Mapping) and depth < _DEPTH:
            obj |= {name: _value(random, more, depth + 1) for name in random.sample(_NAMES, random.randint(0, 2))}
        elif not properties:
            obj = random.choice(({}, {"app": "web"}, {"metadata": {"name": "x"}}))
        return obj
    if kind == "array":
        inner = schema.get("items", {})
        return [_value(random, inner, depth + 1) for _ in range(random.randint(0, 2))] if depth < _DEPTH else []
    if kind == "integer":
        return random.choice((0, 1, 2, 10, schema.get("minimum", -1), schema.get("maximum", 2**31)))
    if kind == "number":
        return random.choice((0, 0.5, -1e9))
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "string":
        return random.choice((*_NAMES, "2026-11-22T10:00:00Z", "", "app=web", "100m", "30s"))
    return random.choice((None, 1, "x", {}, []))


def all_of(registry: Registry) -> Iterator[str]:
    for asked in questions(registry):
        sub = f"/{asked.subresource}" if asked.subresource else ""
        yield f"{asked.path}: {asked.operation.value} {asked.plural}{sub} of {asked.group or 'core'}/{asked.version}"
    yield from (f"/convert: {one.kind} {one.api_version} to {one.desired}" for one in conversions())
    yield from decoders()
