"""Writes objects without a cluster, with the schema and defaults of an API server and our two webhooks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.api import structural
from app.api.conversion import convert
from app.api.kind import KindDefinition
from app.kube.admission import (
    Decision,
    Denied,
    GroupVersionKind,
    GroupVersionResource,
    Handler,
    Operation,
    Patched,
    Review,
)
from app.kube.jsonvalues import json_copy
from app.kube.patches import apply
from app.sandbox.apiserver.customvalidation import fill_defaults, normalized

Json = dict[str, Any]
ALPHA = "apps.kruise.io/v1alpha1"
BETA = "apps.kruise.io/v1beta1"


@dataclass
class Written:
    """The result of a write: the resulting object in the version it was written in, or the rejection."""

    obj: Json | None
    message: str = ""
    code: int = 0
    warnings: tuple[str, ...] = ()
    #: The webhook that rejected the object; empty: the schema did.
    webhook: str = ""

    @property
    def shown(self) -> str:
        """Return the rejection as kubectl prints it."""
        return (
            f'admission webhook "{self.webhook}" denied the request: {self.message}' if self.webhook else self.message
        )

    def stored(self) -> Json:
        """Return the object in the stored version, v1beta1."""
        assert self.obj is not None, self.message
        return self.obj if self.obj["apiVersion"] == BETA else convert(self.obj, BETA)

    def seen(self, version: str) -> Json:
        """Return the object as read in a version."""
        stored = self.stored()
        return stored if version == BETA else convert(stored, version)


def review_of(kind: KindDefinition, obj: Json, old: Json | None = None) -> Review:
    """Return the review that an API server would send for this write."""
    resource = kind.resource()
    version = obj["apiVersion"].rpartition("/")[2]
    return Review(
        uid="uid",
        operation=Operation.CREATE if old is None else Operation.UPDATE,
        kind=GroupVersionKind(resource.group, version, resource.kind),
        resource=GroupVersionResource(resource.group, version, resource.plural),
        name=obj["metadata"].get("name", ""),
        namespace=obj["metadata"].get("namespace", ""),
        object=obj,
        old_object=old,
    )


def written(kind: KindDefinition, handlers: Sequence[Handler], obj: Json, old: Json | None = None) -> Written:
    """Create ``obj``, or update ``old`` to it, in its own version. ``handlers``: those of this kind."""
    version = kind.version(obj["apiVersion"])
    assert version is not None, obj["apiVersion"]
    obj = normalized(version.schema, json_copy(obj))
    fill_defaults(version.schema, obj)
    warnings: tuple[str, ...] = ()
    for mutating in (True, False):
        for handler in (one for one in handlers if one.webhook.mutating is mutating):
            decision = decided(handler, review_of(kind, obj, old))
            if isinstance(decision, Denied):
                return Written(None, decision.message, decision.code, webhook=handler.webhook.name)
            warnings += decision.warnings
            if isinstance(decision, Patched):
                obj = apply(decision.operations, obj)
        if mutating and (message := structural.invalid_message(kind, version, obj)):
            return Written(None, message, 422)
    return Written(obj, warnings=warnings)


def decided(handler: Handler, review: Review) -> Decision:
    async def result() -> Decision:
        found = handler.decide(review)
        return await found if inspect.isawaitable(found) else found

    return asyncio.run(result())
