"""Cells shared by tables: durations, labels, selectors, shortened lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from app.kube.quantities import QuantityError, parse
from app.kube.selectors import to_query

Object: TypeAlias = Mapping[str, Any]
#: Returns the cells of an object's row, given the current time.
Cells: TypeAlias = Callable[[Object, datetime], list[Any]]

NONE: Final = "<none>"
UNSET: Final = "<unset>"
UNKNOWN: Final = "<unknown>"


def human_duration(duration: timedelta) -> str:
    """Return a duration with one or two units: ``95s``, ``4m5s``, ``3h12m``, ``5d7h``, ``2y40d``."""
    total = duration.total_seconds()
    seconds = int(total)
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 24 * 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
    return f"{days // 365}y"


def age(timestamp: str | None, now: datetime) -> str:
    """Return the time since an RFC 3339 timestamp."""
    return human_duration(now - datetime.fromisoformat(timestamp)) if timestamp else UNKNOWN


def name_of(one: Object) -> str:
    """Return the object's name."""
    return str(one["metadata"].get("name", ""))


def age_of(one: Object, now: datetime) -> str:
    """Return the object's age."""
    return age(one["metadata"].get("creationTimestamp"), now)


def spec_of(one: Object) -> Object:
    """Return the spec, or an empty object."""
    return one.get("spec") or {}


def status_of(one: Object) -> Object:
    """Return the status, or an empty object."""
    return one.get("status") or {}


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Return sorted labels as ``a=b,c=d``."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: Object | None) -> str:
    """Return a label selector in the format of the query parameter."""
    return (to_query(selector) if selector else "") or NONE


def container_cells(template: Object | None) -> list[str]:
    """Return container names and images, each joined by commas."""
    containers = spec_of(template or {}).get("containers") or ()
    return [",".join(one.get(key, "") for one in containers) for key in ("name", "image")]


def is_true(one: Object, condition: str) -> bool:
    """Return whether a condition in the status is true."""
    conditions = status_of(one).get("conditions") or ()
    return next((found["status"] == "True" for found in conditions if found["type"] == condition), False)


def some(items: Sequence[str], most: int, empty: str) -> str:
    """Return the first ``most`` items and the number of remaining ones."""
    if len(items) > most:
        return f"{','.join(items[:most])} + {len(items) - most} more..."
    return ",".join(items) or empty


def quantity_text(value: Any) -> str:
    """Return a quantity in canonical form."""
    try:
        return str(parse(str(value)))
    except QuantityError:
        return str(value)


def ingress_points(one: Object) -> list[str]:
    """Return the addresses of a load balancer, sorted."""
    points = (status_of(one).get("loadBalancer") or {}).get("ingress") or ()
    return sorted({point.get("ip") or point.get("hostname") for point in points} - {None, ""})


def replica_cells(one: Object, now: datetime) -> list[Any]:
    """Return name, desired, current and ready replicas, and age."""
    status = status_of(one)
    wanted = spec_of(one).get("replicas", 0)
    return [name_of(one), wanted, status.get("replicas", 0), status.get("readyReplicas", 0), age_of(one, now)]
