"""Objects that stand for a Node and bear its name: made where one is missing, deleted once the Node is gone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from app.kube.client import Client
from app.kube.errors import AlreadyExists, Conflict, NotFound
from app.kube.objects import Node, ObjectMeta, decode_metadata
from app.kube.resources import NODES, Resource
from app.kube.store import Store

logger: Final = logging.getLogger(__name__)


async def create_for_node(
    client: Client, resource: Resource, name: str, labels: Mapping[str, str] | None = None
) -> None:
    """Make the object of a Node with an empty spec; that it is there already is no failure. Raises ``KubeError``."""
    metadata: dict[str, Any] = {"name": name} | ({"labels": dict(labels)} if labels is not None else {})
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": {}}
    try:
        await client.create(resource, body, decode=decode_metadata)
    except AlreadyExists:
        logger.debug("%s %s is there already", resource.kind, name)


async def delete_without_node(client: Client, resource: Resource, metadata: ObjectMeta, nodes: Store[Node]) -> None:
    """Delete the object unless its Node is there. The cache of Nodes may be behind: a Node that it lacks is asked for.
    Raises ``KubeError``."""
    if nodes.get(metadata.name) is None:
        try:
            await client.get(NODES, metadata.name, decode=decode_metadata)
        except NotFound:
            pass
        else:
            return
    try:
        await client.delete(resource, metadata.name, uid=metadata.uid, decode=decode_metadata)
    except (NotFound, Conflict):
        logger.debug("%s %s is gone already", resource.kind, metadata.name)
