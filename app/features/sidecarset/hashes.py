"""The two hashes of a SidecarSet, which distinguish Pods with its current containers from outdated ones.

They are recorded on the set, its revisions and every injected Pod, and every OpenKruise component compares them, so
they must match OpenKruise's exactly. The input is the set's defaulted containers as JSON. [SS-10 … SS-15]
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.api.gojson import dumps_go, go_value, list_of
from app.features.sidecarset.kind import SIDECAR_CONTAINER
from app.features.sidecarset.types import MATCH_ALL_NAMES
from app.kube.hashes import safe_encode

_CONTAINERS = list_of(SIDECAR_CONTAINER)


class SidecarSetHashes(NamedTuple):
    """The values of kruise.io/sidecarset-hash and kruise.io/sidecarset-hash-without-image."""

    hash: str
    without_image: str


def sidecarset_hashes(
    containers: Sequence[Mapping[str, Any]] | None, init_containers: Sequence[Mapping[str, Any]] | None
) -> SidecarSetHashes:
    """Return both hashes for these defaulted containers (JSON, with all their fields).

    Raises :class:`app.api.gojson.GoTypeError` for a field of the wrong type.
    """
    # An empty list is not stored, so hash it as null; otherwise, the next write would change the hashes.
    spec: dict[str, list[dict[str, Any]] | None] = {"containers": _printed(containers or None, "spec.containers")}
    inits = _printed(init_containers, "spec.initContainers") or []
    # Only native sidecars are updated in place, so plain init containers do not count. [SS-10]
    if any(init.get("restartPolicy") == "Always" for init in inits):
        spec["initContainers"] = inits
    full = _hash(spec)
    for listed in spec.values():
        for container in listed or ():
            container.pop("image", None)
    return SidecarSetHashes(full, _hash(spec))


def _printed(containers: Sequence[Mapping[str, Any]] | None, path: str) -> list[dict[str, Any]] | None:
    printed: list[dict[str, Any]] | None = go_value(_CONTAINERS, containers, path)
    for container in printed or ():
        policy = container.get("resourcesPolicy")
        if policy is not None:
            # Set the default pattern even if it was empty, so that a second write does not change the hashes. [SS-12,
            # corrected]
            container["resourcesPolicy"] = {
                "targetContainersMode": policy["targetContainersMode"],
                "targetContainersNameRegex": policy.get("targetContainersNameRegex") or MATCH_ALL_NAMES,
                "resourcesExpr": policy["resourcesExpr"],
            }
    return printed


def _hash(spec: Mapping[str, Any]) -> str:
    # The hexadecimal SHA-256, mapped to the alphabet of generated names. [SS-11]
    return safe_encode(hashlib.sha256(dumps_go(spec).encode()).hexdigest())
