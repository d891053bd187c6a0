"""One object, or None where there is none."""

from __future__ import annotations

from typing import TypeVar

from app.kube.client import Client, Decode
from app.kube.errors import NotFound
from app.kube.resources import Resource

T = TypeVar("T")


async def get_or_none(
    client: Client,
    resource: Resource,
    name: str,
    namespace: str = "",
    *,
    subresource: str = "",
    decode: Decode[T] | None = None,
) -> T | None:
    """The object as it is now; None if there is none. Raises what else the API server says."""
    try:
        return await client.get(resource, name, namespace, subresource=subresource, decode=decode)
    except NotFound:
        return None
