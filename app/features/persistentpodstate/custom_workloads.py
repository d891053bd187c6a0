"""Workloads of kinds on the operator's list. They are polled, not watched. [PPS-44]"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from app.features.persistentpodstate import plan
from app.features.persistentpodstate.plan import Workload
from app.kube.client import Client
from app.kube.discovery import KindMapper
from app.kube.errors import KubeError, NotFound, message_of
from app.kube.resources import ObjectKey, Resource
from app.pods.custom_workloads import GroupKind, ListedKind

logger = logging.getLogger(__name__)

#: Maximum number of pages read per kind.
MAX_PAGES: Final = 40
_Found = dict[ObjectKey, Workload]


class ListedWorkloads:
    """Caches workloads with PersistentPodState annotations. ``namespace`` limits list requests; "" means all."""

    def __init__(self, client: Client, kinds: KindMapper, namespace: str) -> None:
        self._client = client
        self._mapper = kinds
        self._namespace = namespace
        self._known: dict[GroupKind, _Found] = {}

    async def of(self, key: ObjectKey) -> list[Workload]:
        """Read the cached workloads of this name again. Raises KubeError."""
        seen = [found[key] for found in self._known.values() if key in found]
        read = [await self.get(one.api_version, one.kind, key) for one in seen]
        return [one for one in read if one is not None]

    def forget(self, workload: Workload) -> None:
        """Treat the workload as changed on the next poll."""
        known = self._known.get((workload.group, workload.kind), {})
        known.pop(ObjectKey(workload.namespace, workload.name), None)

    async def get(self, api_version: str, kind: str, key: ObjectKey) -> Workload | None:
        """Read a workload. Return None if it does not exist. Raises KubeError."""
        resource = await self._resource(api_version, kind)
        if resource is None:
            return None
        try:
            found: Mapping[str, Any] = await self._client.get(resource, key.name, key.namespace)
        except NotFound:
            return None
        return plan.listed(found, api_version, kind)

    async def changed(self, kinds: Mapping[GroupKind, ListedKind]) -> list[Workload]:
        """Return the workloads whose annotations are new or changed. Kinds that cannot be read are skipped."""
        for gone in self._known.keys() - kinds.keys():
            del self._known[gone]
        changed: list[Workload] = []
        for group_kind, kind in kinds.items():
            former = self._known.get(group_kind, {})
            try:
                found = await self._list(kind)
            except KubeError as error:
                logger.warning(
                    "cannot list the configured kind %s of %s: %s",
                    kind.kind,
                    kind.api_version,
                    message_of(error),
                )
                continue
            changed += [
                one for key, one in found.items() if former.get(key) != one and (one.annotations or key in former)
            ]
            self._known[group_kind] = {key: one for key, one in found.items() if one.annotations}
        return changed

    async def _list(self, kind: ListedKind) -> _Found:
        resource = await self._resource(kind.api_version, kind.kind)
        found: _Found = {}
        token = ""
        for _ in range(MAX_PAGES if resource is not None and kind.version else 0):
            assert resource is not None  # noqa: S101  # the range is empty without one
            page = await self._client.list_page(resource, self._namespace, continue_token=token, metadata_only=True)
            for item in page.items:
                one = plan.listed(item, kind.api_version, kind.kind)
                found[ObjectKey(one.namespace, one.name)] = one
            token = page.continue_token
            if not token:
                break
        return found

    async def _resource(self, api_version: str, kind: str) -> Resource | None:
        mapped = await self._mapper.find(api_version, kind)
        return mapped.resource if mapped is not None and mapped.resource.namespaced else None
