"""What an object owns in a cluster, as commands read it: the Pods it controls, and its revisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.kube.client import Client
from app.kube.objects import Pod, decode_controller_revision, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS
from app.kube.selectors import to_query
from app.pods.owners import Owner, is_controlled_by
from app.pods.revisions import Revision, in_order, of_owner, revision_of


@dataclass(frozen=True, slots=True)
class OwnedObjects:
    """Pods that one object controls, and its revisions, oldest first."""

    pods: Sequence[Pod]
    revisions: Sequence[Revision]


async def owned_objects(client: Client, owner: Owner, selector: Mapping[str, Any] | None) -> OwnedObjects:
    """Read the Pods and revisions that ``owner`` controls and ``selector`` matches."""
    query = to_query(selector)
    pods = await client.list(PODS, owner.namespace, label_selector=query, decode=decode_pod)
    revisions = await client.list(
        CONTROLLERREVISIONS, owner.namespace, label_selector=query, decode=decode_controller_revision
    )
    return OwnedObjects(
        [pod for pod in pods.items if is_controlled_by(pod.metadata, owner)],
        in_order(of_owner(map(revision_of, revisions.items), owner)),
    )
