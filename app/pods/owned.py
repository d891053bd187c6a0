"""What an object owns in a cluster, as commands read it: the Pods it controls, and its revisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.kube.client import Client
from app.kube.objects import ObjectMeta, Pod, decode_controller_revision, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS
from app.kube.selectors import to_query
from app.pods.revisions import Revision, in_order, of_owner, revision_of


@dataclass(frozen=True, slots=True)
class OwnedObjects:
    """Pods that one object controls, and its revisions, oldest first."""

    pods: Sequence[Pod]
    revisions: Sequence[Revision]


def is_controlled_by(uid: str) -> Callable[[ObjectMeta], bool]:
    """Whether an object is controlled by that of the uid, whatever its kind."""
    return lambda metadata: metadata.controller is not None and metadata.controller.uid == uid


async def owned_objects(
    client: Client,
    namespace: str,
    uid: str,
    selector: Mapping[str, Any] | None,
    is_owned: Callable[[ObjectMeta], bool] | None = None,
) -> OwnedObjects:
    """Read what ``selector`` matches and the object with that uid owns. ``is_owned``: which Pods are its own; by
    default those it controls."""
    query = to_query(selector)
    pods = await client.list(PODS, namespace, label_selector=query, decode=decode_pod)
    revisions = await client.list(
        CONTROLLERREVISIONS, namespace, label_selector=query, decode=decode_controller_revision
    )
    own = is_owned if is_owned is not None else is_controlled_by(uid)
    return OwnedObjects(
        [pod for pod in pods.items if own(pod.metadata)],
        in_order(of_owner(map(revision_of, revisions.items), uid)),
    )
