"""What validation asks of a cluster, and of files where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.api import names
from app.api.core_validation import pod_errors
from app.api.workloadspread import WORKLOAD_SPREAD, TargetReference, WorkloadSpread
from app.api.workloadspread.validation import group_of
from app.kube.client import Client, if_readable
from app.kube.errors import NotFound
from app.kube.fielderrors import Path
from app.kube.objects import ConfigMap, decode_config_map
from app.kube.resources import CONFIGMAPS, DEPLOYMENTS, JOBS, REPLICASETS, STATEFULSETS, Resource
from app.kube.store import Store
from app.placement.workloadspread.configuration import CustomWorkloads
from app.placement.workloadspread.plan.whitelist import Whitelist, WhitelistError, parse_whitelist
from app.pods.template_check import template_errors

CLONE_SETS: Final = Resource(names.APPS_GROUP, names.V1BETA1, "clonesets", "CloneSet")
ADVANCED_STATEFUL_SETS: Final = Resource(names.APPS_GROUP, names.V1BETA1, "statefulsets", "StatefulSet")
#: Where the known targets are read, by group and kind: of two kinds of one name the one that is meant.
TARGETS: Final = {
    (one.group, one.kind): one
    for one in (CLONE_SETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, ADVANCED_STATEFUL_SETS, JOBS)
}


class ClusterLookups:
    """Asks the API server."""

    def __init__(self, client: Client, own_namespace: str) -> None:
        self._client = client
        self._own_namespace = own_namespace

    async def others(self, namespace: str) -> Sequence[WorkloadSpread]:
        """Those stored now that can be read."""
        read = if_readable(WorkloadSpread.model_validate_json)
        found = await self._client.list(WORKLOAD_SPREAD.resource(), namespace, decode=read)
        return [one for one in found.items if one is not None]

    async def whitelist(self) -> Whitelist:
        """As the ConfigMap has it; one that cannot be read lists nothing."""
        try:
            found = await self._client.get(
                CONFIGMAPS, names.CONFIGURATION_CONFIG_MAP, self._own_namespace, decode=decode_config_map
            )
            return parse_whitelist((found.data or {}).get(names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY))
        except (NotFound, WhitelistError):
            return Whitelist()

    async def template(self, target: TargetReference, namespace: str) -> Mapping[str, Any] | None:
        """The workload as it is stored."""
        resource = TARGETS.get((group_of(target), target.kind))
        if resource is None:
            return None
        try:
            return template_of(await self._client.get(resource, target.name, namespace))
        except NotFound:
            return None

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str]:
        """By a dry run (D-20)."""
        return await template_errors(self._client, self._own_namespace, template, "")


class StandaloneLookups:
    """Without a cluster: what files say, and a structural check of templates."""

    def __init__(self, spreads: Store[WorkloadSpread], config_maps: Store[ConfigMap], own_namespace: str) -> None:
        self._spreads = spreads
        self._custom = CustomWorkloads(config_maps, own_namespace)

    async def others(self, namespace: str) -> Sequence[WorkloadSpread]:
        """Those of the files."""
        return [one for one in self._spreads.list() if one.metadata.namespace == namespace]

    async def whitelist(self) -> Whitelist:
        """As the file has it."""
        return self._custom()

    async def template(self, target: TargetReference, namespace: str) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Nobody knows the workloads."""
        return None

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str]:
        """What a look at containers and volumes tells."""
        spec = template.get("spec") or {}
        found = pod_errors(
            spec.get("containers") or [], spec.get("initContainers") or [], spec.get("volumes") or [], Path("spec")
        )
        return list(map(str, found))


def template_of(workload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The Pod template of a workload, with its volumeClaimTemplates as volumes of these names (WS-11)."""
    spec = workload.get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, Mapping):
        return None
    claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}}
        for claim in spec.get("volumeClaimTemplates") or ()
        if isinstance(claim, Mapping) and (name := (claim.get("metadata") or {}).get("name"))
    ]
    pod_spec = template.get("spec") or {}
    own = [volume for volume in pod_spec.get("volumes") or () if volume.get("name") not in {c["name"] for c in claims}]
    return {**template, "spec": {**pod_spec, "volumes": [*own, *claims]}} if claims else template
