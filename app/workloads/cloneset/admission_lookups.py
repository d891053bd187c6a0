"""Where the CloneSet webhooks get their answers: from a cluster, or from nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.objects import Pod, decode_pod
from app.kube.resources import PODS
from app.pods.template_check import template_errors
from app.workloads.cloneset.strict_validation import GATE


class StandaloneLookups:
    """Without a cluster: there are no Pods, and templates are checked structurally."""

    def __init__(self, enabled: Callable[[str], bool]) -> None:
        """``enabled`` tells of feature gates."""
        self.no_template_defaults = enabled("TemplateNoDefaults")
        self.default_host_ports = enabled("DefaultHostNetworkHostPortsInPodTemplates")
        self.strict = enabled(GATE)

    async def pod(self, namespace: str, name: str) -> Pod | None:  # noqa: ARG002  # the protocol's
        """None."""
        return None

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:  # noqa: ARG002
        """Nobody to ask."""
        return None


class ClusterLookups(StandaloneLookups):
    """With a cluster: read when it is needed, which is when a CloneSet is written."""

    def __init__(self, client: Client, namespace: str, enabled: Callable[[str], bool]) -> None:
        """``namespace`` is the manager's own."""
        super().__init__(enabled)
        self._client = client
        self._namespace = namespace

    async def pod(self, namespace: str, name: str) -> Pod | None:
        """As the API server has it now."""
        try:
            return await self._client.get(PODS, name, namespace, decode=decode_pod)
        except NotFound:
            return None

    async def template_errors(self, template: Mapping[str, Any], path: str) -> Sequence[str] | None:
        """By a dry run in the manager's namespace."""
        return await template_errors(self._client, self._namespace, template, path)
