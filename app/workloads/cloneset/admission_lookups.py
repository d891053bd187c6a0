"""Where the CloneSet webhooks get their answers: from a cluster, or from nothing."""

from __future__ import annotations

from collections.abc import Callable

from app.kube.client import Client
from app.kube.lookup import get_or_none
from app.kube.objects import Pod, decode_pod
from app.kube.resources import PODS
from app.workloads.cloneset.strict_validation import GATE
from app.workloads.engine.template_checks import ClusterTemplates, StandaloneTemplates


class StandaloneLookups(StandaloneTemplates):
    """Without a cluster: there are no Pods, and templates are checked structurally."""

    def __init__(self, enabled: Callable[[str], bool]) -> None:
        """``enabled`` tells of feature gates."""
        super().__init__(enabled)
        self.strict = enabled(GATE)

    async def pod(self, namespace: str, name: str) -> Pod | None:  # noqa: ARG002  # the protocol's
        """None."""
        return None


class ClusterLookups(ClusterTemplates):
    """With a cluster: read when it is needed, which is when a CloneSet is written."""

    def __init__(self, client: Client, namespace: str, enabled: Callable[[str], bool]) -> None:
        """``namespace`` is the manager's own."""
        super().__init__(client, namespace, enabled)
        self.strict = enabled(GATE)

    async def pod(self, namespace: str, name: str) -> Pod | None:
        """As the API server has it now."""
        return await get_or_none(self._client, PODS, name, namespace, decode=decode_pod)
