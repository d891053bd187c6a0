"""What one reconcile of a CloneSet goes by: what was observed, and the counts the plan works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from app.api.cloneset import CloneSet
from app.kube.objects import PersistentVolumeClaim, Pod
from app.pods.claims import instance_id
from app.workloads.cloneset.plan.resolved import ResolvedSpec
from app.workloads.cloneset.plan.rollout import Inputs, RolloutState
from app.workloads.cloneset.state import CloneSetState
from app.workloads.engine.snapshot import Snapshot

Observed: TypeAlias = Snapshot[CloneSet, CloneSetState, ResolvedSpec]


@dataclass(frozen=True, slots=True)
class PodsAndClaims:
    """The Pods and claims of a CloneSet, as instance ids are drawn from them."""

    active: Sequence[Pod]
    inactive: Sequence[Pod]
    claims: Sequence[PersistentVolumeClaim]
    #: Whether some Pod, whoever's it is, has the name that belongs to an instance id.
    name_taken: Callable[[str], bool] = lambda _: False

    def claims_of(self, id_: str) -> list[PersistentVolumeClaim]:
        """The claims of one instance."""
        return [claim for claim in self.claims if id_ and instance_id(claim.metadata.labels) == id_]

    def without_claims_of_others(self) -> PodsAndClaims:
        """The same without the claims of instances whose Pod would have the name of a Pod that is none of these."""
        known = {instance_id(pod.metadata.labels) for pod in (*self.active, *self.inactive)}
        ids = [instance_id(claim.metadata.labels) for claim in self.claims]
        taken = {id_ for id_ in ids if id_ not in known and self.name_taken(id_)}
        kept = [claim for claim, id_ in zip(self.claims, ids, strict=True) if id_ not in taken]
        return replace(self, claims=kept) if taken else self


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSetSnapshot(Snapshot[CloneSet, CloneSetState, ResolvedSpec]):
    """One CloneSet as it is."""

    inputs: Inputs
    rollout: RolloutState
    pods_and_claims: PodsAndClaims

    @classmethod
    def of(
        cls, observed: Observed, inputs: Inputs, rollout: RolloutState, pods_and_claims: PodsAndClaims
    ) -> CloneSetSnapshot:
        """Add the plan's counts to what was observed."""
        return cls(
            workload=observed.workload,
            state=observed.state,
            resolved=observed.resolved,
            status=observed.status,
            observed=observed.observed,
            claims=observed.claims,
            revisions=observed.revisions,
            now=observed.now,
            inputs=inputs,
            rollout=rollout,
            pods_and_claims=pods_and_claims,
        )
