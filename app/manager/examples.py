"""What admission adds to an example of the documentation: asked of the webhooks themselves, without a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import orjson
import yaml

from app.api.registry import find_kind
from app.kube.admission import (
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    Review,
)
from app.kube.clock import SystemClock
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone

#: A page is the same whenever it is made.
_TIME: Final = re.compile(r'"\d{4}-\d\d-\d\dT[^"]*"')


async def filled_in(example: str) -> Sequence[str]:
    """``path: value`` of each field of the spec that webhooks fill in, outside Pod templates."""
    document = yaml.safe_load(example)
    group, _, version = str(document["apiVersion"]).rpartition("/")
    kind = find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        return ()
    if kind.namespaced:
        document["metadata"].setdefault("namespace", "default")
    review = Review(
        uid="example",
        operation=Operation.CREATE,
        kind=GroupVersionKind(group, version, document["kind"]),
        resource=GroupVersionResource(group, version, kind.plural),
        name=document["metadata"]["name"],
        namespace=document["metadata"].get("namespace", ""),
        dry_run=True,
        object=document,
    )
    _, reviewed = await Standalone(None, parse_gates(""), SystemClock(), Random(0)).decide(review)
    after = reviewed.object or {}
    return [f"{path}: {value}" for path, value in _added(document.get("spec"), after.get("spec"), "spec")]


def _added(before: Any, after: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(after, dict) and (isinstance(before, dict) or (before is None and after)):
        for name, value in after.items():
            if name != "template" or path not in ("spec", "spec.template"):
                yield from _added((before or {}).get(name), value, f"{path}.{name}")
    elif isinstance(after, list) and isinstance(before, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _added(one, other, f"{path}[{index}]")
    elif before is None and after not in (None, {}, []):
        yield path, _TIME.sub("(now)", orjson.dumps(after).decode())
