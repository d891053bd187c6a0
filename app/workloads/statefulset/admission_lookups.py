"""Where the StatefulSet webhooks get their answers: from a cluster, or from nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.api.statefulset.defaults import ClaimGates
from app.kube.client import Client
from app.pods.storageclasses import list_storage_classes


class StandaloneLookups:
    """Without a cluster: storage classes are unknown."""

    def __init__(self, enabled: Callable[[str], bool]) -> None:
        """``enabled`` tells of feature gates."""
        self.no_template_defaults = enabled("TemplateNoDefaults")
        self.vertical_scaling = enabled("InPlaceWorkloadVerticalScaling")
        self.claims = ClaimGates(enabled("StatefulSetAutoDeletePVC"), enabled("StatefulSetAutoResizePVCGate"))

    async def expandable(self) -> Mapping[str, bool | None]:
        """Nobody to ask."""
        return {}


class ClusterLookups(StandaloneLookups):
    """With a cluster: read when it is needed, which is when claim templates change."""

    def __init__(self, client: Client, enabled: Callable[[str], bool]) -> None:
        super().__init__(enabled)
        self._client = client

    async def expandable(self) -> Mapping[str, bool | None]:
        """As the API server has it now."""
        return (await list_storage_classes(self._client)).expandable
