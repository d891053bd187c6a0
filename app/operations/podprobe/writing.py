"""Changing what a node probes: read, change, and write if nobody else did so meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.kube.backoff import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.client import Client
from app.kube.errors import Conflict, NotFound
from app.kube.objects import decode_metadata
from app.kube.patches import merge_difference
from app.operations.podprobe.objects import NODE_POD_PROBES

Json = dict[str, Any]


async def change_probes(client: Client, node: str, edit: Callable[[Json], object]) -> None:
    """Change the spec of a node's NodePodProbe; ``edit`` does so in place. Nothing where the node has none."""
    for attempt in range(CONFLICT_ATTEMPTS):
        try:
            live: Json = await client.get(NODE_POD_PROBES, node)
            before = live.get("spec") or {}
            edited = dict(before)
            edit(edited)
            patch = merge_difference(before, edited)
            if not patch:
                return
            known = {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}
            body = {"metadata": known, "spec": patch}
            await client.patch(NODE_POD_PROBES, node, body, decode=decode_metadata)
        except NotFound:
            return
        except Conflict:
            if attempt == CONFLICT_ATTEMPTS - 1:
                raise
            await client.clock.sleep(conflict_wait(attempt))
        else:
            return
