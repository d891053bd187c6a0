"""Statuses are written only where they differ; conditions keep the time of their last transition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.resources import Resource
from app.sandbox.controllers.objects import Condition


async def patch_status(client: Client, resource: Resource, found: Any, status: Mapping[str, Any]) -> None:
    """Write the fields of the status that differ. Zero and absent are the same."""
    old: dict[str, Any] = msgspec.to_builtins(found.status)
    changes = {key: value for key, value in status.items() if (old.get(key) or None) != (value or None)}
    if not changes:
        return
    metadata = found.metadata
    body = {"metadata": {"uid": metadata.uid}, "status": changes}
    await client.patch(resource, metadata.name, body, metadata.namespace, subresource="status")


def with_conditions(
    old: Sequence[Condition], wanted: Sequence[tuple[str, str, str, str]], now: datetime, *, updates: bool = False
) -> list[dict[str, Any]]:
    """Conditions as they are to be: type, status, reason and message of each; those not named stay.

    ``updates``: they also have a time of the last update, as a Deployment's.
    """
    present = {one.type: one for one in old}
    named = {one[0] for one in wanted}
    result = [_printed(one) for one in old if one.type not in named]
    for type_, status, reason, message in wanted:
        was = present.get(type_)
        if was is not None and (was.status, was.reason, was.message) == (status, reason, message):
            result.append(_printed(was))
            continue
        body = {"type": type_, "status": status, "reason": reason, "message": message}
        since = was.last_transition_time if was is not None and was.status == status else None
        body["lastTransitionTime"] = rfc3339(since if since is not None else now)
        if updates:
            body["lastUpdateTime"] = rfc3339(now)
        result.append(body)
    return result


def _printed(condition: Condition) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(condition)
    return found
