"""The workloads above a Pod: its controller, that one's controller, and so on (PUB-31, PUB-122).

Asked of the API server, and remembered: a ReplicaSet keeps its Deployment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.mapping import KindMapper
from app.kube.objects import OwnerReference, decode_metadata
from app.pods.owners import Owner, refers_to
from app.protection.podunavailablebudget.matching import Workload, workload_of

#: Nobody stacks more.
MAX_HEIGHT: Final = 8
#: Workloads remembered, and for how many seconds: one may be adopted later.
MAX_REMEMBERED: Final = 4_096
REMEMBERED: Final = 60.0


class Owners(Protocol):
    """Finds the workloads above an object."""

    async def above(self, controller: OwnerReference, namespace: str) -> Sequence[Workload]:
        """The controller and all above it. What cannot be read ends the chain."""
        ...


class LiveOwners:
    """Asks the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds = KindMapper(client)
        #: A uid alone says nothing: whoever creates Pods writes any into their owner references.
        self._known: OrderedDict[tuple[str, OwnerReference], tuple[float, OwnerReference | None]] = OrderedDict()

    async def above(self, controller: OwnerReference, namespace: str) -> Sequence[Workload]:
        """The chain, from the Pod's controller up."""
        found: list[Workload] = []
        current: OwnerReference | None = controller
        while current is not None and len(found) < MAX_HEIGHT:
            found.append(workload_of(current.api_version, current.kind, current.name))
            current = await self._controller_of(current, namespace)
        return found

    async def _controller_of(self, reference: OwnerReference, namespace: str) -> OwnerReference | None:
        now = self._client.clock.monotonic()
        asked = (namespace, reference)
        until, known = self._known.get(asked, (0.0, None))
        if now < until:
            return known
        try:
            mapped = await self._kinds.find(reference.api_version, reference.kind)
            if mapped is None or not mapped.resource.namespaced:
                above = None
            else:
                owner = await self._client.get(mapped.resource, reference.name, namespace, decode=decode_metadata)
                same = refers_to(reference, namespace, Owner.of(mapped.resource, owner.metadata))
                above = owner.metadata.controller if same else None
        except (KubeError, ValueError):
            return None
        self._known[asked] = (now + REMEMBERED, above)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return above


class DirectOwners:
    """Knows no more than the Pod says; standalone mode."""

    async def above(self, controller: OwnerReference, namespace: str) -> Sequence[Workload]:  # noqa: ARG002
        """The controller."""
        return (workload_of(controller.api_version, controller.kind, controller.name),)
