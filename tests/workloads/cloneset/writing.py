"""Writing CloneSets without a cluster: what an API server does with its schema, and the two webhooks in between."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.api import structural
from app.api.cloneset import CLONE_SET
from app.api.conversion import convert
from app.kube.admission import Denied, GroupVersionKind, GroupVersionResource, Operation, Patched, Review
from app.kube.objects import Pod
from app.kube.patches import apply
from app.workloads.cloneset.admission import VALIDATE, handlers
from app.workloads.cloneset.admission_lookups import StandaloneLookups

Json = dict[str, Any]
ALPHA = "apps.kruise.io/v1alpha1"
BETA = "apps.kruise.io/v1beta1"
UID = "11111111-2222-3333-4444-555555555555"


def clone_set(name: str = "cs", *, version: str = BETA, metadata: Json | None = None, **spec: Any) -> Json:
    """A CloneSet that is right, save for what ``spec`` (merged over it; None takes a field away) makes wrong."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    }
    whole = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    return {
        "apiVersion": version,
        "kind": "CloneSet",
        "metadata": {"name": name, "namespace": "shop", "uid": UID, **(metadata or {})},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def rolling(version: str = BETA, *, policy: str = "ReCreate", **fields: Any) -> Json:
    """An update strategy with these fields, as that version writes it."""
    if version == ALPHA:
        return {"type": policy, **fields}
    return {"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": policy, **fields}}


def review(obj: Json, old: Json | None = None) -> Review:
    """The review an API server would send about this write."""
    version = obj["apiVersion"].rpartition("/")[2]
    return Review(
        uid="uid",
        operation=Operation.CREATE if old is None else Operation.UPDATE,
        kind=GroupVersionKind("apps.kruise.io", version, "CloneSet"),
        resource=GroupVersionResource("apps.kruise.io", version, "clonesets"),
        name=obj["metadata"].get("name", ""),
        namespace=obj["metadata"].get("namespace", ""),
        object=obj,
        old_object=old,
    )


class Lookups(StandaloneLookups):
    """Answers of a cluster, given by the test; notes what it is asked."""

    def __init__(
        self, pods: Sequence[Pod] = (), template: Sequence[str] | None = None, gates: Collection[str] = ()
    ) -> None:
        super().__init__(lambda gate: gate in gates)
        self.pods = {pod.metadata.name: pod for pod in pods}
        self.template = template
        self.templates: list[Mapping[str, Any]] = []

    async def pod(self, namespace: str, name: str) -> Pod | None:
        return self.pods.get(name)

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:
        assert path == "spec.template"
        self.templates.append(template)
        return self.template


@dataclass
class Written:
    """What came of a write: the object as it would be stored in the version it was written in, or the refusal."""

    obj: Json | None
    message: str = ""
    code: int = 0
    warnings: tuple[str, ...] = ()
    patched: bool = False

    def stored(self) -> Json:
        """As it is kept: in v1beta1."""
        assert self.obj is not None, self.message
        return self.obj if self.obj["apiVersion"] == BETA else convert(self.obj, BETA)

    def seen(self, version: str) -> Json:
        """As it is read in a version."""
        stored = self.stored()
        return stored if version == BETA else convert(stored, version)


def write(obj: Json, old: Json | None = None, lookups: Lookups | None = None) -> Written:
    """Create ``obj``, or update ``old`` to it, in the version it is written in."""
    version = CLONE_SET.version(obj["apiVersion"])
    assert version is not None
    obj = structural.with_defaults(version.schema, structural.pruned(version.schema, obj))
    mutating, validating = handlers(lookups or Lookups())
    mutated = mutating.decide(review(obj, old))
    if isinstance(mutated, Denied):
        return Written(None, mutated.message, mutated.code)
    if isinstance(mutated, Patched):
        obj = apply(mutated.operations, obj)
    if message := structural.invalid_message(CLONE_SET, version, obj):
        return Written(None, message, 422)
    decision = asyncio.run(validating.decide(review(obj, old)))  # type: ignore[arg-type]
    if isinstance(decision, Denied):
        return Written(None, decision.message, decision.code)
    return Written(obj, warnings=decision.warnings, patched=isinstance(mutated, Patched))


def refusal(spec_or_obj: Json, old: Json | None = None, lookups: Lookups | None = None) -> str:
    """The message of a refusal; "" if the write passes."""
    return write(spec_or_obj, old, lookups).message


def prefixed(message: str) -> str:
    """A webhook's refusal as kubectl prints it behind ``Error from server``."""
    return f'admission webhook "{VALIDATE.name}" denied the request: {message}'
