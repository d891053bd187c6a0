"""Writes of SidecarSets without a cluster: the schema and both webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.features.sidecarset.kind import SIDECAR_SET
from app.features.sidecarset.types import SidecarSet
from app.features.sidecarset.webhooks import VALIDATE, SidecarSetLookups, handlers, read
from app.framework.watched import Stores
from app.kube.admission import Review
from app.kube.objects import ControllerRevision, ObjectMeta
from tests.admission import writing
from tests.admission.writing import BETA, Json, review_of


def sidecar_set(name: str = "s", *, version: str = BETA, metadata: Json | None = None, **spec: Any) -> Json:
    """A valid SidecarSet with ``spec`` merged over it; None removes a field."""
    whole = {
        "selector": {"matchLabels": {"app": "web"}},
        "containers": [{"name": "sidecar", "image": "busybox:1"}],
        **spec,
    }
    return {
        "apiVersion": version,
        "kind": "SidecarSet",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def review(obj: Json, old: Json | None = None) -> Review:
    """Return the review of this write."""
    return review_of(SIDECAR_SET, obj, old)


def revision(name: str, of: str, custom_version: str = "", number: int = 1) -> ControllerRevision:
    labels = {"kruise.io/sidecarset-name": of}
    if custom_version:
        labels["apps.kruise.io/sidecarset-custom-version"] = custom_version
    return ControllerRevision(metadata=ObjectMeta(name=name, labels=labels), revision=number)


class Lookups(SidecarSetLookups):
    """Lookups with fixed results; records each call."""

    def __init__(
        self,
        sets: Sequence[SidecarSet] = (),
        revisions: Sequence[ControllerRevision] = (),
        whitelist: str | None = None,
        defaults_allowed: bool = True,
        template: Sequence[str] | None = None,
    ) -> None:
        super().__init__(None, Stores(()), "kruise-system", defaults_allowed=defaults_allowed)
        self._sets = sets
        self._whitelist = whitelist
        self.revisions = revisions
        self.template = template
        self.asked: list[str] = []
        self.templates: list[Mapping[str, Any]] = []
        #: Sets by name that only the API server has.
        self.live_sets: dict[str, SidecarSet] = {}
        self.asked_sets: list[str] = []

    def sidecarsets(self) -> Sequence[SidecarSet]:
        return self._sets

    async def whitelist(self) -> str | None:
        return self._whitelist

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Sequence[SidecarSet]:
        self.asked_sets += set_names
        return [self.live_sets[name] for name in set_names if name in self.live_sets]

    async def sidecarset(self, name: str) -> SidecarSet | None:
        self.asked_sets.append(name)
        return self.live_sets.get(name)

    async def revision(self, name: str) -> ControllerRevision | None:
        self.asked.append(name)
        return next((found for found in self.revisions if found.metadata.name == name), None)

    async def revisions_of(self, set_name: str) -> Sequence[ControllerRevision]:
        self.asked.append(set_name)
        label = "kruise.io/sidecarset-name"
        return [found for found in self.revisions if found.metadata.labels.get(label) == set_name]

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:
        self.templates.append(template)
        return self.template


class Written(writing.Written):
    def model(self) -> SidecarSet:
        return read(self.stored())


def write(obj: Json, old: Json | None = None, lookups: Lookups | None = None) -> Written:
    """Create ``obj``, or update ``old`` to it, in the version of the object."""
    return Written(**vars(writing.written(SIDECAR_SET, handlers(lookups or Lookups()), obj, old)))


def prefixed(message: str) -> str:
    """Return a webhook's refusal as kubectl prints it."""
    return f'admission webhook "{VALIDATE.name}" denied the request: {message}'
