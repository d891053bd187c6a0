"""What commands read of one workload from a cluster: its Pods and revisions, and the revision it would record next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from app.api.model import KubeObject
from app.kube.client import Client
from app.kube.objects import Pod
from app.pods.owned import owned_objects
from app.pods.revisions import Create, Revision, current_revision, plan_revision
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.revisions import Content, Revisions


async def pods_and_revisions(
    client: Client, kind: WorkloadKind, owner: KubeObject, selector: Mapping[str, Any]
) -> tuple[Sequence[Pod], Sequence[Revision]]:
    """The Pods that the workload controls and its selector matches, and its revisions, oldest first."""
    found = await owned_objects(client, kind.owner(owner.metadata), selector)
    return found.pods, found.revisions


def revisions_to_come(content: Content, recorded: Sequence[Revision], current: str, collisions: int) -> Revisions:
    """The revisions once ``content`` is recorded. ``current``: the one that the status names."""
    plan = plan_revision(content.name, content.data, list(recorded), collisions, content.digest)
    update = Revision(plan.name, plan.number, plan.data) if isinstance(plan, Create) else plan.revision
    ordered = [*(one for one in recorded if one.name != update.name), update]
    return Revisions(current_revision(current, ordered, update), update, ordered, collisions)


class RecordedStatus(Protocol):
    """Of a status what says which revisions there are."""

    @property
    def current_revision(self) -> str: ...
    @property
    def collision_count(self) -> int | None: ...


def revisions_of(status: RecordedStatus | None, content: Content, recorded: Sequence[Revision]) -> Revisions:
    """The same by the status of a workload, if it has one."""
    if status is None:
        return revisions_to_come(content, recorded, "", 0)
    return revisions_to_come(content, recorded, status.current_revision, status.collision_count or 0)
