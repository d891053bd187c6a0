"""Writing the status of a custom resource: of the very object that is meant, not of another that has its name by now.

On ``/status`` of a custom resource an API server goes by the resourceVersion alone: a uid in the body is overwritten by
that of whatever has the name, and so is no precondition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.kube.backoff import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.client import Client
from app.kube.errors import Conflict, NotFound
from app.kube.expectations import is_at_least
from app.kube.lookup import get_or_none
from app.kube.objects import Meta, Object, decode_metadata
from app.kube.resources import Resource

Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownStatus:
    """A status, and the resourceVersion of the object that has it."""

    status: Status
    version: str


def newest_status(obj: Object, written: KnownStatus | None) -> KnownStatus:
    """The newest status known of an object: what was ``written``, unless the cache shows that or a later one."""
    version = obj.metadata.resource_version or ""
    if written is not None and not is_at_least(version, written.version):
        return written
    status = getattr(obj, "status", None)
    return KnownStatus(status.to_dict() if status is not None else {}, version)


async def write_status(
    client: Client,
    resource: Resource,
    owner: Meta,
    present: KnownStatus,
    difference: Callable[[Status], Status],
) -> KnownStatus | None:
    """Write what ``difference`` makes of the present status, as a merge patch; after a conflict again, on the status as
    it then is.

    Returns what was written; None if nothing differs, or if ``owner`` is gone, whoever may have its name now. Raises
    KubeError; ``Conflict`` after some tries.
    """
    namespace = owner.namespace or ""
    for attempt in range(CONFLICT_ATTEMPTS):
        patch = difference(present.status)
        if not patch:
            return None
        body = {"metadata": {"resourceVersion": present.version}, "status": patch}
        try:
            written = await client.patch(
                resource, owner.name, body, namespace, subresource="status", decode=decode_metadata
            )
        except NotFound:
            return None
        except Conflict:
            if attempt == CONFLICT_ATTEMPTS - 1:
                raise
        else:
            return KnownStatus({**present.status, **patch}, written.metadata.resource_version)
        await client.clock.sleep(conflict_wait(attempt))
        live: dict[str, Any] | None = await get_or_none(client, resource, owner.name, namespace)
        if live is None or live["metadata"]["uid"] != owner.uid:
            return None
        present = KnownStatus(live.get("status") or {}, live["metadata"]["resourceVersion"])
    return None
