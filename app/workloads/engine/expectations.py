"""What of our own writes the cache does not show yet; nothing is decided before it does.

Rules CS-52, CS-57, CS-177, CS-178.
"""

from __future__ import annotations

import logging
from typing import Final

from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.controller import Result
from app.kube.expectations import ResourceVersionExpectations, ScaleAction, ScaleExpectations, is_at_least
from app.kube.lookup import get_or_none
from app.kube.objects import Meta, Pod, decode_pod
from app.kube.resources import PODS
from app.kube.store import Store
from app.pods.owners import Owner, is_controlled_by
from app.workloads.engine.kind import OWNER
from app.workloads.engine.metrics import Metrics

logger = logging.getLogger(__name__)

#: Seconds after which an expectation that was given up is looked at again.
RECHECK_DELAY: Final = 10.0


class Expectations:
    """By the uid of the workload: Pods and claims to come and to go, and versions of Pods that we wrote."""

    def __init__(self, clock: Clock) -> None:
        self.scale: ScaleExpectations[str] = ScaleExpectations(clock)
        self.versions = ResourceVersionExpectations(clock)
        #: Per workload the Pods (uid) whose written version the cache may not show yet.
        self.written: dict[str, set[str]] = {}

    def expect_creation(self, owner_uid: str, name: str) -> None:
        """A request to create a Pod is about to be sent."""
        self.scale.expect(owner_uid, ScaleAction.CREATE, name)

    def creation_observed(self, owner_uid: str, name: str) -> None:
        """The cache shows the Pod, or its creation has failed."""
        self.scale.observe(owner_uid, ScaleAction.CREATE, name)

    def expect_deletion(self, owner_uid: str, name: str) -> None:
        """A request to delete a Pod is about to be sent."""
        self.scale.expect(owner_uid, ScaleAction.DELETE, name)

    def deletion_observed(self, owner_uid: str, name: str) -> bool:
        """The cache shows that the Pod goes, or its deletion has failed; whether we expected it."""
        return self.scale.observe(owner_uid, ScaleAction.DELETE, name)

    def expect_version(self, owner_uid: str, written: Meta) -> None:
        """Nothing more is decided on the Pod before the cache shows this version."""
        self.versions.expect(written)
        self.written.setdefault(owner_uid, set()).add(written.uid or "")

    def forget(self, owner_uid: str) -> None:
        """A workload is gone."""
        self.scale.forget(owner_uid)
        for uid in self.written.pop(owner_uid, ()):
            self.versions.forget(uid)


def claim_expectation(name: str) -> str:
    """How a claim's name is told from a Pod's among expectations."""
    return f"pvc/{name}"


class ExpectationCheck:
    """Whether a workload may be decided upon. ``timeout``: seconds the cache may take to show our writes; ``force``:
    what the cache has not shown by then is given up (gate ForceDeleteTimeoutExpectationGate)."""

    def __init__(
        self,
        client: Client,
        pods: Store[Pod],
        expectations: Expectations,
        metrics: Metrics,
        *,
        timeout: float,
        force: bool,
    ) -> None:
        self._client = client
        self._pods = pods
        self._expectations = expectations
        self._metrics = metrics
        self._timeout = timeout
        self._force = force

    async def unsatisfied(self, owner: Owner) -> Result | None:
        """When to ask again; None: the cache shows what we wrote."""
        expected, uid = self._expectations, owner.uid
        unsatisfied = expected.scale.unsatisfied(uid)
        if unsatisfied is not None:
            if unsatisfied.waited < self._timeout:
                return Result(requeue_after=unsatisfied.remaining(self._timeout))
            self._metrics.expectation_leaked(owner.namespace, owner.name)
            logger.warning("%s: the cache does not show: %s", owner, unsatisfied.outstanding)
            if self._force or await self._cache_is_complete(owner):
                expected.scale.forget(uid)
            return Result(requeue_after=RECHECK_DELAY)
        written = expected.written.get(uid)
        if not written:
            return None
        for pod in self._pods.by_index(OWNER, owner.index_key):
            if pod.metadata.uid not in written:
                continue
            late = expected.versions.unsatisfied(pod.metadata)
            if late is None:
                continue
            if late.waited < self._timeout:
                return Result(requeue_after=late.remaining(self._timeout))
            # B-4: whoever is right, waiting longer does not help.
            await self._forget_if_shown(pod)
        written.clear()
        return None

    async def _cache_is_complete(self, owner: Owner) -> bool:
        """Whether the API server has the same Pods as the cache: then what was expected will never come."""
        live = await self._client.list(PODS, owner.namespace, decode=decode_pod)
        present = {pod.metadata.uid for pod in live.items if is_controlled_by(pod.metadata, owner)}
        return present == {pod.metadata.uid for pod in self._pods.by_index(OWNER, owner.index_key)}

    async def _forget_if_shown(self, pod: Pod) -> None:
        live = await get_or_none(self._client, PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
        if live is None:
            return
        if live.metadata.uid == pod.metadata.uid and is_at_least(
            pod.metadata.resource_version, live.metadata.resource_version
        ):
            self._expectations.versions.forget(pod.metadata.uid)
