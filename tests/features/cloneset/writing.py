"""Writing CloneSets without a cluster: what an API server does with its schema, and the two webhooks in between."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.webhooks import CloneSetLookups, handlers
from app.kube.admission import Review
from app.kube.objects import Pod
from tests.admission.writing import ALPHA, BETA, Json, Written, review_of, written
from tests.kit import objects

UID = "11111111-2222-3333-4444-555555555555"


def clone_set(name: str = "cs", *, version: str = BETA, metadata: Json | None = None, **spec: Any) -> Json:
    """Return a valid CloneSet with ``spec`` merged over it; None removes a field."""
    whole = {**objects.workload_spec(3), **spec}
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
    return review_of(CLONE_SET, obj, old)


class Lookups(CloneSetLookups):
    """Lookups with the answers of the test, which record the templates to validate."""

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


def write(obj: Json, old: Json | None = None, lookups: Lookups | None = None) -> Written:
    """Create ``obj``, or update ``old`` to it, in the version it is written in."""
    return written(CLONE_SET, handlers(lookups or Lookups()), obj, old)


def refusal(spec_or_obj: Json, old: Json | None = None, lookups: Lookups | None = None) -> str:
    return write(spec_or_obj, old, lookups).message
