"""Launch priorities of containers, as admission wrote them into their Pod: env that waits for a barrier key. Pure.

In-place updates follow the same order as the first start does (PM-31, PM-149).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app.api import names
from app.kube.objects import Pod

#: 64 bits: OpenKruise admits priorities beyond U-68's range, and such Pods are there when we take over.
_KEY: Final = re.compile(rf"{names.BARRIER_KEY_PREFIX}(0|-?[1-9][0-9]{{0,18}})", re.ASCII)


def barrier_config_map(pod: Pod) -> str:
    """The name of a Pod's barrier ConfigMap."""
    return pod.metadata.name + names.BARRIER_CONFIG_MAP_SUFFIX


def priority_of_key(key: str) -> int | None:
    """The priority a key is for; None for a key that is no barrier key."""
    found = _KEY.fullmatch(key)
    return int(found[1]) if found is not None else None


def launch_priorities(pod: Pod) -> Mapping[str, int]:
    """Container → launch priority, from the env that admission appended (PM-142)."""
    config_map = barrier_config_map(pod)
    found = {}
    for container in pod.spec.containers:
        for entry in container.env:
            reference = entry.value_from.config_map_key_ref if entry.value_from is not None else None
            # B-13: a user's own env of this name, from elsewhere, is none of ours.
            if entry.name != names.ENV_CONTAINER_BARRIER or reference is None or reference.name != config_map:
                continue
            priority = priority_of_key(reference.key)
            if priority is not None:
                found[container.name] = priority
    return found
