"""Writing a workload's status, and taking away what no longer serves (CS-58, CS-61, CS-63)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from app.kube.client import Client
from app.kube.resources import Resource
from app.kube.statuses import KnownStatus, write_status
from app.pods.revisions import Revision, short_hash
from app.workloads.engine.conditions import Status, status_patch
from app.workloads.engine.history import History
from app.workloads.engine.snapshot import AnySnapshot


async def write_workload_status(
    client: Client,
    resource: Resource,
    snapshot: AnySnapshot,
    wanted: Status,
    required: Collection[str],
) -> None:
    """Write the status where it differs, and remember what was written until the cache shows it.

    ``required``: fields that the schema wants to be there. Raises what the API server says.
    """

    def difference(present: Status) -> dict[str, Any]:
        return status_patch(present, wanted, required=required)

    workload, state = snapshot.workload, snapshot.state
    known = state.present_status(workload)
    written = await write_status(client, resource, workload.metadata, known, difference)
    if written is not None:
        state.written = KnownStatus(wanted, written.version)


async def truncate_history(history: History, snapshot: AnySnapshot, needed: Collection[Revision], limit: int) -> None:
    """CS-63: delete old revisions nobody uses.

    ``needed``: those needed beside what the Pods are at and what the status, as it is now, calls the current one: its
    write wakes nobody, so this is the last look after a roll-out.
    """
    ordered, workload = snapshot.revisions.ordered, snapshot.workload
    if len(ordered) <= limit:
        return
    hashes = {pod.revision for pod in snapshot.pods}
    in_use = {one.name for one in ordered if short_hash(one.name) in hashes}
    in_use.update(one.name for one in needed)
    in_use.add(str(snapshot.state.present_status(workload).status.get("currentRevision") or ""))
    await history.truncate(snapshot.resolved.content, ordered, in_use, limit)
