"""What commands read of one workload from a cluster: its Pods and revisions, and the revision it would record next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.api.model import KubeObject
from app.kube.client import Client
from app.kube.objects import Pod, decode_controller_revision, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS
from app.kube.selectors import to_query
from app.pods.revisions import Create, Revision, current_revision, in_order, of_owner, plan_revision, revision_of
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.revisions import Content, Revisions


async def pods_and_revisions(
    client: Client, kind: WorkloadKind, owner: KubeObject, selector: Mapping[str, Any]
) -> tuple[list[Pod], list[Revision]]:
    """The Pods that the workload controls and its selector matches, and its revisions, oldest first."""
    namespace, uid, query = owner.metadata.namespace, owner.metadata.uid, to_query(selector)
    pods = await client.list(PODS, namespace, label_selector=query, decode=decode_pod)
    revisions = await client.list(
        CONTROLLERREVISIONS, namespace, label_selector=query, decode=decode_controller_revision
    )
    return (
        [pod for pod in pods.items if kind.manages(pod.metadata, uid)],
        in_order(of_owner(map(revision_of, revisions.items), uid)),
    )


def revisions_to_come(content: Content, recorded: Sequence[Revision], current: str, collisions: int) -> Revisions:
    """The revisions once ``content`` is recorded. ``current``: the one that the status names."""
    plan = plan_revision(content.name, content.data, list(recorded), collisions)
    update = Revision(plan.name, plan.number, plan.data) if isinstance(plan, Create) else plan.revision
    ordered = [*(one for one in recorded if one.name != update.name), update]
    return Revisions(current_revision(current, ordered, update), update, ordered, collisions)
