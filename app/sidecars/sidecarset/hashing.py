"""The two hashes of a SidecarSet: what tells Pods with its present containers from those with former ones.

They are recorded on the set, its revisions and every Pod it was injected into, and compared by every OpenKruise
component, so they agree with OpenKruise's to the byte (SS-10 … SS-15). The input is the set's defaulted containers as
JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.api.gojson import dumps_go, go_value, list_of
from app.api.sidecarset.gospec import SIDECAR_CONTAINER
from app.pods.hashes import safe_encode

_CONTAINERS = list_of(SIDECAR_CONTAINER)


class SidecarSetHashes(NamedTuple):
    """The values of kruise.io/sidecarset-hash and kruise.io/sidecarset-hash-without-image."""

    hash: str
    without_image: str


def sidecarset_hashes(
    containers: Sequence[Mapping[str, Any]] | None, init_containers: Sequence[Mapping[str, Any]] | None
) -> SidecarSetHashes:
    """Both hashes of the set with these defaulted containers (JSON, with every field they came with).

    Raises :class:`app.api.gojson.GoTypeError` for a field of another type than Kubernetes gives it.
    """
    spec: dict[str, list[dict[str, Any]] | None] = {"containers": _printed(containers, "spec.containers")}
    inits = _printed(init_containers, "spec.initContainers") or []
    # SS-10: only containers that keep running are updated in place, so plain init containers do not count.
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
            container["resourcesPolicy"] = _with_regex(policy)
    return printed


def _with_regex(policy: Mapping[str, Any]) -> dict[str, Any]:
    """SS-12, corrected: the default pattern counts even where it was left empty, so a second write changes no hash."""
    pattern = policy.get("targetContainersNameRegex") or ".*"
    mode = policy["targetContainersMode"]
    return {
        "targetContainersMode": mode,
        "targetContainersNameRegex": pattern,
        "resourcesExpr": policy["resourcesExpr"],
    }


def _hash(spec: Mapping[str, Any]) -> str:
    # SS-11: the hexadecimal SHA-256, spelled in the alphabet of generated names.
    return safe_encode(hashlib.sha256(dumps_go(spec).encode()).hexdigest())
