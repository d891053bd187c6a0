"""Discovery: maps a group, version and kind, as used in owner references and targets, to a resource.

Results of the API server's discovery are cached only for a while, since CRDs are added and removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

import msgspec

from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.resources import Resource

#: Seconds for which a kind, or its absence, is cached.
REMEMBERED: Final = 300.0
NOT_FOUND_FOR: Final = 10.0
#: Maximum number of cached groups and versions. Their names come from users.
MAX_REMEMBERED: Final = 500


@dataclass(frozen=True, slots=True)
class Mapped:
    """A served kind, and whether it has a scale subresource."""

    resource: Resource
    scalable: bool


class _ApiResource(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = False


class _ApiResources(msgspec.Struct, frozen=True):
    resources: list[_ApiResource] | None = None


_decode: Final = msgspec.json.Decoder(_ApiResources)
_Kinds = Mapping[str, Mapped]


class KindMapper:
    """Finds the resource for a kind."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: The kinds of each group and version, and the time at which they were requested.
        self._found: dict[str, tuple[float, _Kinds]] = {}

    async def find(self, api_version: str, kind: str) -> Mapped | None:
        """Return the resource of the kind, or None if it is not served. Raises ``KubeError``."""
        group, _, version = api_version.rpartition("/")
        if not all(_is_name(part) for part in (group or "x", version)):
            return None
        now = self._client.clock.monotonic()
        asked, kinds = self._found.get(api_version, (-inf, {}))
        if now >= asked + (REMEMBERED if kind in kinds else NOT_FOUND_FOR):
            kinds = await self._ask(group, version)
            if len(self._found) >= MAX_REMEMBERED:
                self._found.clear()
            self._found[api_version] = (now, kinds)
        return kinds.get(kind)

    async def _ask(self, group: str, version: str) -> _Kinds:
        try:
            body = await self._client.raw(f"/apis/{group}/{version}" if group else f"/api/{version}")
        except NotFound:
            return {}
        return _kinds(group, version, _decode.decode(body).resources or [])


def _is_name(part: str) -> bool:
    return part.replace("-", "").replace(".", "").isalnum() and part.isascii() and len(part) < 254


def _kinds(group: str, version: str, served: list[_ApiResource]) -> _Kinds:
    scalable = {one.name.partition("/")[0] for one in served if one.name.endswith("/scale")}
    return {
        one.kind: Mapped(Resource(group, version, one.name, one.kind, one.namespaced), one.name in scalable)
        for one in served
        if "/" not in one.name
    }
