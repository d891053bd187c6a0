"""Whether a Pod can be updated in place, and what that changes: worked out once per pair of revisions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.pods.inplace import Blocked, InPlaceOptions, UpdateSpec, blocked_on_pod, update_spec
from app.pods.revisions import Revision, short_hash
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.settings import UpdatePolicy, WorkloadSettings


@dataclass(slots=True)
class InPlaceUpdates:
    """The ways between revisions that were worked out, of one workload at one generation."""

    specs: dict[tuple[str, str], UpdateSpec | Blocked] = field(default_factory=dict)

    def spec_of(
        self, pod: PodFacts, target: Revision, ordered: Sequence[Revision], settings: WorkloadSettings
    ) -> UpdateSpec | Blocked:
        """What an in-place update of the Pod changes. ``ordered``: all revisions there are."""
        return self.spec_between(pod.revision, target, ordered, settings)

    def obstacle(
        self, pod: PodFacts, target: Revision, ordered: Sequence[Revision], settings: WorkloadSettings
    ) -> str | None:
        """Why the Pod cannot be updated in place; None: it can."""
        found = self.spec_of(pod, target, ordered, settings)
        replaceable = settings.update_policy == UpdatePolicy.IN_PLACE_IF_POSSIBLE
        if not isinstance(found, Blocked) and replaceable:
            found = blocked_on_pod(pod.pod, found) or found  # B-4
        return str(found) if isinstance(found, Blocked) else None

    def spec_between(
        self, at: str, target: Revision, ordered: Sequence[Revision], settings: WorkloadSettings
    ) -> UpdateSpec | Blocked:
        """What an in-place update from the revision of that short hash changes; worked out once per pair."""
        key = (at, target.name)
        found = self.specs.get(key)
        if found is None:
            gates, policy = settings.gates, settings.update_policy
            own = next((revision for revision in ordered if short_hash(revision.name) == at), None)
            options = InPlaceOptions(
                env_from_metadata=gates.env_from_metadata,
                vertical_scaling=gates.vertical_scaling,
                # PM-15: InPlaceOnly does not ask for the claims.
                compare_claim_templates=gates.recreate_on_claim_change
                and policy is not None
                and policy != UpdatePolicy.IN_PLACE_ONLY,
            )
            bears = short_hash(target.name) if gates.update_hash else ""
            found = update_spec(own, target, options, grace_seconds=settings.grace_seconds or 0, revision=bears)
            if own is not None:  # else the cache may be behind: what it lacks now it may have next time
                self.specs[key] = found
        return found
