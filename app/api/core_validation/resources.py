"""Resource requests and limits of a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.core_validation.probes import NEGATIVE
from app.kube.fielderrors import FieldError, Path, invalid, not_found, required
from app.kube.quantities import Quantity, parse
from app.kube.validation import is_qualified_name

Json = Mapping[str, Any]

_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"


def resource_errors(resources: Json, path: Path) -> list[FieldError]:
    """``resources``, in order of names. Quantities have been read before, so each of them is one."""
    limits, requests = _parsed(resources.get("limits", {})), _parsed(resources.get("requests", {}))
    errors: list[FieldError] = []
    for name, quantity in limits.items():
        errors += _quantity_errors(name, quantity, path.child("limits").key(name))
    for name, quantity in requests.items():
        errors += _quantity_errors(name, quantity, path.child("requests").key(name))
        errors += _limit_errors(name, quantity, limits.get(name), path)
    for index, claim in enumerate(resources.get("claims", ())):
        # The Pod's resourceClaims are not part of what is checked here; a container cannot bring one along.
        errors.append(not_found(path.child("claims").index(index), claim["name"]))
    return errors


def _parsed(quantities: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: parse(quantities[name]) for name in sorted(quantities)}


def _quantity_errors(name: str, quantity: Quantity, path: Path) -> list[FieldError]:
    errors = [invalid(path, name, message) for message in is_qualified_name(name)]
    if not errors and "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        errors = [
            invalid(path, name, "must be a standard resource type or fully qualified"),
            invalid(path, name, "must be a standard resource for containers"),
        ]
    if quantity.sign < 0:
        errors.append(invalid(path, str(quantity), NEGATIVE))
    if _is_extended(name) and quantity.milli_value() % 1000:
        errors.append(invalid(path, str(quantity), "must be an integer"))
    return errors


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def _limit_errors(name: str, request: Quantity, limit: Quantity | None, path: Path) -> list[FieldError]:
    # What cannot be shared between containers must be reserved in full.
    exact = _is_extended(name) or name.startswith(_HUGE_PAGES)
    if limit is None:
        detail = "Limit must be set for non overcommitable resources"
        return [required(path.child("limits"), detail)] if exact else []
    if exact and request != limit:
        return [invalid(path.child("requests"), str(request), f"must be equal to {name} limit of {limit}")]
    if request > limit:
        detail = f"must be less than or equal to {name} limit of {limit}"
        return [invalid(path.child("requests"), str(request), detail)]
    return []
