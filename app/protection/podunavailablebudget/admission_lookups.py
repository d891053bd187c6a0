"""Where the webhook of PodUnavailableBudget gets its answers: from a cluster, or from nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from app.api import names
from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET, PodUnavailableBudget
from app.kube.client import Client, if_readable
from app.kube.errors import KubeError
from app.kube.resources import DEPLOYMENTS, REPLICASETS, STATEFULSETS, Resource

#: Workloads whose template is looked at for a warning.
_TEMPLATED: Final = {
    (resource.group, resource.kind): resource
    for resource in (
        DEPLOYMENTS,
        REPLICASETS,
        STATEFULSETS,
        Resource(names.APPS_GROUP, names.V1BETA1, "clonesets", "CloneSet"),
        Resource(names.APPS_GROUP, names.V1BETA1, "statefulsets", "StatefulSet"),
    )
}


class StandaloneLookups:
    """Without a cluster: the budgets that are given, and no workloads."""

    def __init__(self, enabled: bool, budgets: Callable[[str], Iterable[PodUnavailableBudget]] = lambda _: ()) -> None:
        """``enabled``: whether one of the two feature gates is on."""
        self.enabled = enabled
        self._budgets = budgets

    async def budgets(self, namespace: str) -> Iterable[PodUnavailableBudget]:
        """Those of the files."""
        return self._budgets(namespace)

    async def template_labels(self, namespace: str, target: Mapping[str, Any]) -> Mapping[str, str] | None:  # noqa: ARG002
        """Nobody to ask."""
        return None


class ClusterLookups(StandaloneLookups):
    """With a cluster: read when a budget is written, which is rare, so that two of one moment see each other more often
    than a cache would let them (PUB-21)."""

    def __init__(self, client: Client, enabled: bool) -> None:
        super().__init__(enabled)
        self._client = client

    async def budgets(self, namespace: str) -> Iterable[PodUnavailableBudget]:
        """As the API server has them now; what cannot be read protects nothing."""
        read = if_readable(PodUnavailableBudget.model_validate_json)
        found = await self._client.list(POD_UNAVAILABLE_BUDGET.resource(), namespace, decode=read)
        return [one for one in found.items if one is not None]

    async def template_labels(self, namespace: str, target: Mapping[str, Any]) -> Mapping[str, str] | None:
        """As the API server has it now; a warning is not worth a refusal."""
        group = str(target.get("apiVersion") or "").rpartition("/")[0]
        resource = _TEMPLATED.get((group, str(target.get("kind") or "")))
        if resource is None:
            return None
        try:
            workload = await self._client.get(resource, str(target.get("name") or ""), namespace)
        except (KubeError, ValueError):
            return None
        labels = (((workload.get("spec") or {}).get("template") or {}).get("metadata") or {}).get("labels")
        return labels if isinstance(labels, dict) else {}
