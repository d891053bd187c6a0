"""Where the SidecarSet webhooks get their answers: from a cluster, or from nothing but the sets themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from app.api import names
from app.api.sidecarset import SIDECAR_SET, SidecarSet, read_sidecar_set
from app.kube.callers import STRANGER
from app.kube.client import Client
from app.kube.coalesced import Coalesced
from app.kube.errors import KubeError
from app.kube.lookup import get_or_none
from app.kube.objects import (
    ConfigMap,
    ControllerRevision,
    Namespace,
    ObjectMeta,
    decode_config_map,
    decode_controller_revision,
    decode_metadata,
    decode_namespace,
)
from app.kube.resources import CONFIGMAPS, CONTROLLERREVISIONS, NAMESPACES
from app.kube.store import Store
from app.pods.template_check import template_errors
from app.sidecars.sidecarset.record import RECORDED_SET, by_recorded_set

#: Between two lists of the sets, also for strangers, and how long a review waits for what it asks about them.
LIST_INTERVAL: Final = 0.005
STRANGERS_LIST_INTERVAL: Final = 0.02
LIST_SECONDS: Final = 3.0

FindSets = Callable[[], Iterable[SidecarSet]]


class StandaloneLookups:
    """Without a cluster: what files say, and Pod templates are checked structurally."""

    def __init__(
        self,
        sidecarsets: FindSets,
        revisions: Store[ControllerRevision] | None = None,
        configuration: Store[ConfigMap] | None = None,
        *,
        defaults_allowed: bool = False,
    ) -> None:
        self.sidecarsets = sidecarsets
        self.defaults_allowed = defaults_allowed
        self._revisions: Store[ControllerRevision] = (
            revisions if revisions is not None else Store(indexes={RECORDED_SET: by_recorded_set})
        )
        self._configuration: Store[ConfigMap] = configuration if configuration is not None else Store()

    async def sidecarset(self, name: str) -> SidecarSet | None:  # noqa: ARG002  # the protocol's
        """None: there is nothing beyond what is known."""
        return None

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[SidecarSet]:  # noqa: ARG002  # the protocol's
        """None, likewise."""
        return ()

    async def revision(self, name: str) -> ControllerRevision | None:
        """By name; the controller makes them, but a file may hold one."""
        return next((one for one in self._revisions.list() if one.metadata.name == name), None)

    async def revisions_of(self, set_name: str) -> Iterable[ControllerRevision]:
        """By label."""
        return self._revisions.by_index(RECORDED_SET, set_name)

    async def whitelist(self) -> str | None:
        """That of the ConfigMap."""
        found = (one for one in self._configuration.list() if one.metadata.name == names.CONFIGURATION_CONFIG_MAP)
        texts = (one.data.get(names.PATCH_POD_METADATA_WHITELIST_KEY) for one in found)
        return next((text for text in texts if text is not None), None)

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:  # noqa: ARG002
        """Nobody to ask."""
        return None


class NewerSets:
    """Reads the sets that were admitted a moment ago and that the index does not show.

    Whoever reaches the webhook port may claim a hundred sets that are never stored, so a claim alone costs no request:
    one list of metadata answers all reviews that arrive within a few milliseconds, and only a set that it shows in a
    state unknown to the index is read. [SS-39]
    """

    def __init__(self, client: Client, shows: Callable[[str, str, int], bool]) -> None:
        """``shows``: whether the index shows a set (name, uid, generation)."""
        # Outside of the callers' budgets: the interval is the limit, and a Pod waits for the answer.
        self._client = client.named("admission")
        self._shows = shows
        self._listed: Coalesced[None, Mapping[str, ObjectMeta]] = Coalesced(self._list, interval=LIST_INTERVAL)
        self._listed_for_strangers: Coalesced[None, Mapping[str, ObjectMeta]] = Coalesced(
            self._list, interval=STRANGERS_LIST_INTERVAL, shared=True
        )
        self._set: Coalesced[str, Mapping[str, Any] | None] = Coalesced(self._get, shared=True)

    async def __call__(self, set_names: Iterable[str]) -> list[Mapping[str, Any]]:
        """Those of these sets that are newer than the index. Raises KubeError, and TimeoutError after some seconds."""
        async with asyncio.timeout(LIST_SECONDS):
            listed = await (self._listed_for_strangers if STRANGER.get() else self._listed)(None)
            newer = [
                name
                for name in set_names
                if (one := listed.get(name)) is not None and not self._shows(name, one.uid, one.generation)
            ]
            found = [await self._set(name) for name in newer]
        return [one for one in found if one is not None]

    async def _list(self, _: None) -> Mapping[str, ObjectMeta]:
        found: dict[str, ObjectMeta] = {}
        token = ""
        while True:
            page = await self._client.list_page(
                SIDECAR_SET.resource(), continue_token=token, metadata_only=True, decode=decode_metadata
            )
            found |= {one.metadata.name: one.metadata for one in page.items}
            token = page.continue_token
            if not token:
                return found

    async def _get(self, name: str) -> Mapping[str, Any] | None:
        return await get_or_none(self._client, SIDECAR_SET.resource(), name)


class InjectionLookups:
    """What injection asks: the caches first, the API server where they are behind."""

    def __init__(
        self,
        namespaces: Store[Namespace],
        revisions: Store[ControllerRevision],
        client: Client | None,
        own: str,
        newer: NewerSets | None = None,
    ) -> None:
        """``client`` and ``newer`` are None without a cluster; ``own`` is the manager's namespace."""
        self._namespaces = namespaces
        self._revisions = revisions
        self._client = client
        self._own_namespace = own
        self._newer = newer

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a cached namespace."""
        found = self._namespaces.get(namespace)
        return None if found is None else found.metadata.labels

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """Cached revisions of a set."""
        return self._revisions.by_index(RECORDED_SET, set_name)

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[Mapping[str, Any]]:
        """Those of these SidecarSets that are newer than the index; none if they cannot be read."""
        if self._newer is None:
            return ()
        try:
            return await self._newer(set_names)
        except KubeError:
            return ()

    async def live_namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace as the API server has it now; None if it cannot be read (SS-35).

        Without a cluster: its name, which every namespace has as a label.
        """
        if self._client is None:
            return {names.NAMESPACE_NAME: namespace}
        try:
            found = await self._client.get(NAMESPACES, namespace, decode=decode_namespace)
        except KubeError:
            return None
        return found.metadata.labels

    async def live_revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """Revisions of a set as the API server has them now; none if they cannot be read."""
        if self._client is None:
            return ()
        try:
            listing = await self._client.list(
                CONTROLLERREVISIONS,
                self._own_namespace,
                label_selector=f"{names.SIDECARSET_NAME}={set_name}",
                decode=decode_controller_revision,
            )
        except KubeError:
            return ()
        return listing.items


class ClusterLookups:
    """With a cluster: sets from a cache, everything else read when it is needed, which is when a set is written."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        sidecarsets: FindSets,
        newer: NewerSets,
        *,
        defaults_allowed: bool = False,
    ) -> None:
        """``namespace`` is the manager's own."""
        self.sidecarsets = sidecarsets
        self._newer = newer
        self.defaults_allowed = defaults_allowed
        self._client = client
        self._namespace = namespace

    async def sidecarset(self, name: str) -> SidecarSet | None:
        """As the API server has it now."""
        return await get_or_none(self._client, SIDECAR_SET.resource(), name, decode=read_sidecar_set)

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[SidecarSet]:
        """As the API server has them now."""
        return [read_sidecar_set(orjson.dumps(found)) for found in await self._newer(set_names)]

    async def revision(self, name: str) -> ControllerRevision | None:
        """By name, whosever it is."""
        return await get_or_none(
            self._client, CONTROLLERREVISIONS, name, self._namespace, decode=decode_controller_revision
        )

    async def revisions_of(self, set_name: str) -> Iterable[ControllerRevision]:
        """By label."""
        listing = await self._client.list(
            CONTROLLERREVISIONS,
            self._namespace,
            label_selector=f"{names.SIDECARSET_NAME}={set_name}",
            decode=decode_controller_revision,
        )
        return listing.items

    async def whitelist(self) -> str | None:
        """Read at each use, as OpenKruise does: a change of the ConfigMap holds at once."""
        found = await get_or_none(
            self._client, CONFIGMAPS, names.CONFIGURATION_CONFIG_MAP, self._namespace, decode=decode_config_map
        )
        if found is None:
            return None
        return found.data.get(names.PATCH_POD_METADATA_WHITELIST_KEY)

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:
        """By a dry run in the manager's namespace."""
        return await template_errors(self._client, self._namespace, template, "")
