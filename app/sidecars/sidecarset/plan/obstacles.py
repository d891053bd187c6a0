"""Why a Pod cannot be updated in place: the first field besides images in which the set is another. Pure. SS-93."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LISTS = ("containers", "initContainers")


def obstacle(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first difference of two contents of a set (``spec`` as JSON) that only new Pods can take; '' if none."""
    for kind in _LISTS:
        if found := _difference(_by_name(before.get(kind)), _by_name(now.get(kind)), kind):
            return found
    return ""


def _by_name(containers: Sequence[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    return {str(container.get("name")): container for container in containers or ()}


def _difference(before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    # Plain init containers have run when a Pod is updated; they count only among those that keep running (SS-10).
    if kind == "initContainers" and not any(
        one.get("restartPolicy") == "Always" for one in (*before.values(), *now.values())
    ):
        return ""
    for name in sorted({*before, *now}):
        if name not in before or name not in now:
            return f"spec.{kind}[{name}]"
        one, other = before[name], now[name]
        for field in sorted({*one, *other} - {"image"}):
            if (one.get(field) or None) != (other.get(field) or None):
                return f"spec.{kind}[{name}].{field}"
    if list(before) != list(now):
        return f"spec.{kind}: their order"
    return ""
