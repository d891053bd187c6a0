"""Where the SidecarSet webhooks get their answers: from a cluster, or from nothing but the sets themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from app.api import names
from app.api.sidecarset import SIDECAR_SET, SidecarSet
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.objects import ControllerRevision, decode_config_map, decode_controller_revision
from app.kube.resources import CONFIGMAPS, CONTROLLERREVISIONS
from app.pods.template_check import template_errors

FindSets = Callable[[], Iterable[SidecarSet]]


class StandaloneLookups:
    """Without a cluster: there are no revisions, and Pod templates are checked structurally."""

    def __init__(self, sidecarsets: FindSets, *, whitelist: str | None = None, defaults_allowed: bool = False) -> None:
        self.sidecarsets = sidecarsets
        self.defaults_allowed = defaults_allowed
        self._whitelist = whitelist

    async def sidecarset(self, name: str) -> SidecarSet | None:  # noqa: ARG002  # the protocol's
        """None: there is nothing beyond what is known."""
        return None

    async def revision(self, name: str) -> ControllerRevision | None:  # noqa: ARG002  # the protocol's
        """None: revisions are made by the controller, which needs a cluster."""
        return None

    async def revisions_of(self, set_name: str) -> Iterable[ControllerRevision]:  # noqa: ARG002  # the protocol's
        """None either."""
        return ()

    async def whitelist(self) -> str | None:
        """The text given at the start."""
        return self._whitelist

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:  # noqa: ARG002
        """Nobody to ask."""
        return None


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
        try:
            return await self._client.get(SIDECAR_SET.resource(), name, decode=SidecarSet.model_validate_json)
        except NotFound:
            return None

    async def revision(self, name: str) -> ControllerRevision | None:
        """By name, whosever it is."""
        try:
            return await self._client.get(CONTROLLERREVISIONS, name, self._namespace, decode=decode_controller_revision)
        except NotFound:
            return None

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
        try:
            found = await self._client.get(
                CONFIGMAPS, names.CONFIGURATION_CONFIG_MAP, self._namespace, decode=decode_config_map
            )
        except NotFound:
            return None
        return found.data.get(names.PATCH_POD_METADATA_WHITELIST_KEY)

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:
        """By a dry run in the manager's namespace."""
        return await template_errors(self._client, self._namespace, template, "")
