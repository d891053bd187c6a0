"""Writes of budgets without a cluster: the schema, then the webhook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.api.conversion import convert
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.features.podunavailablebudget.webhooks import BudgetLookups, handlers
from app.framework.watched import Stores
from tests.admission.writing import Written, written

Json = dict[str, Any]
ALPHA, BETA = "policy.kruise.io/v1alpha1", "policy.kruise.io/v1beta1"
WEB = {"matchLabels": {"app": "web"}}


def budget(
    name: str = "shop", *, version: str = BETA, annotations: Mapping[str, str] | None = None, **spec: Any
) -> Json:
    """A valid budget with ``spec`` merged over it; None removes a field."""
    whole = {"selector": WEB, "maxUnavailable": "20%", **spec}
    metadata: Json = {"name": name, "namespace": "web"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": version,
        "kind": "PodUnavailableBudget",
        "metadata": metadata,
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


class Lookups(BudgetLookups):
    def __init__(
        self, budgets: Iterable[Json] = (), labels: Mapping[str, Mapping[str, str]] | None = None, enabled: bool = True
    ) -> None:
        known = [PodUnavailableBudget.model_validate(as_stored(one)) for one in budgets]
        super().__init__(enabled, None, Stores(()))
        self.known = known
        self.labels = labels or {}
        self.asked: list[str] = []

    async def budgets(self, namespace: str) -> Iterable[PodUnavailableBudget]:
        return self.known

    async def template_labels(self, namespace: str, target: Mapping[str, Any]) -> Mapping[str, str] | None:
        self.asked.append(target["name"])
        return self.labels.get(target["name"])


def as_stored(obj: Json) -> Json:
    """Return the stored form, v1beta1."""
    return as_seen(obj, BETA)


def as_seen(obj: Json, version: str) -> Json:
    """Return the object in a version."""
    return obj if obj["apiVersion"] == version else convert(obj, version)


def write(obj: Json, old: Json | None = None, lookups: Lookups | None = None) -> Written:
    """Create ``obj``, or update ``old`` to it, in the version of the object."""
    return written(POD_UNAVAILABLE_BUDGET, handlers(lookups or Lookups()), obj, old)


def refusal(obj: Json, old: Json | None = None, lookups: Lookups | None = None) -> str:
    return write(obj, old, lookups).message
