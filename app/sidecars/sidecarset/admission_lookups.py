"""Where the SidecarSet webhooks get their answers: from a cluster, or from nothing but the sets themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from app.api import names
from app.api.sidecarset import SIDECAR_SET, SidecarSet, read_sidecar_set
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.lookup import get_or_none
from app.kube.objects import (
    ConfigMap,
    ControllerRevision,
    Namespace,
    decode_config_map,
    decode_controller_revision,
    decode_namespace,
)
from app.kube.resources import CONFIGMAPS, CONTROLLERREVISIONS, NAMESPACES
from app.kube.store import Store
from app.pods.template_check import template_errors
from app.sidecars.sidecarset.record import RECORDED_SET, by_recorded_set

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


class InjectionLookups:
    """What injection asks: the caches first, the API server where they are behind."""

    def __init__(
        self, namespaces: Store[Namespace], revisions: Store[ControllerRevision], client: Client | None, own: str
    ) -> None:
        """``client`` is None without a cluster; ``own`` is the manager's namespace."""
        self._namespaces = namespaces
        self._revisions = revisions
        self._client = client
        self._own_namespace = own

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a cached namespace."""
        found = self._namespaces.get(namespace)
        return None if found is None else found.metadata.labels

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """Cached revisions of a set."""
        return self._revisions.by_index(RECORDED_SET, set_name)

    async def live_sidecarset(self, name: str) -> Mapping[str, Any] | None:
        """A SidecarSet as the API server has it now; None if it cannot be read."""
        if self._client is None:
            return None
        try:
            found: Mapping[str, Any] = await self._client.get(SIDECAR_SET.resource(), name)
        except KubeError:
            return None
        return found

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
        self, client: Client, namespace: str, sidecarsets: FindSets, *, defaults_allowed: bool = False
    ) -> None:
        """``namespace`` is the manager's own."""
        self.sidecarsets = sidecarsets
        self.defaults_allowed = defaults_allowed
        self._client = client
        self._namespace = namespace

    async def sidecarset(self, name: str) -> SidecarSet | None:
        """As the API server has it now."""
        return await get_or_none(self._client, SIDECAR_SET.resource(), name, decode=read_sidecar_set)

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
