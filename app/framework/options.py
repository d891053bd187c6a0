"""Feature gates and flags as a feature declares them, and how the values of flags are read. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

#: Whether a feature gate is on.
Enabled: TypeAlias = Callable[[str], bool]


def gate_is_off(gate: str, *others: str) -> str:
    """The refusal of what needs a feature gate that is off: OpenKruise's words, and the way out. ``others``: gates that
    are off too and have to be on."""
    wanted = ",".join(f"{one}=true" for one in (gate, *others))
    return (
        f"feature-gate {gate} is not enabled; start the manager with --feature-gates={wanted} "
        f"(featureGates in the values of the chart)"
    )


class Stage(StrEnum):
    """How settled a feature is; ``AllAlpha`` and ``AllBeta`` switch a whole stage."""

    ALPHA = "Alpha"
    BETA = "Beta"
    #: A gate OpenKruise does not have: no stage switches it, or AllAlpha would mean more here than there.
    OURS = "Ours"


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate and what it does when on."""

    name: str
    effect: str
    default: bool = False
    stage: Stage = Stage.OURS
    #: False: known, so that manifests of OpenKruise start, but nothing here asks it; said once when given.
    acts: bool = True


FlagValue: TypeAlias = str | bool | int | float


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: how its value is read, what it is when not given, what it does."""

    name: str
    default: FlagValue
    parse: Callable[[str], FlagValue]
    help: str
    shorthand: str = ""
    #: False: accepted so that manifests of OpenKruise start, but nothing here reads it; said once when given.
    meaningful: bool = True


_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_bool(text: str) -> bool:
    """A boolean as Go's strconv.ParseBool reads it. Raises ValueError."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("expected true or false")


def parse_duration(text: str) -> float:
    """Seconds in a duration as Go writes it (``1h30m``, ``15s``, ``0``). Raises ValueError."""
    sign, body = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if body == "0":
        return 0.0
    parts = _DURATION_PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise ValueError("expected a duration such as 15s or 2m30s")
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)


def parse_integer(text: str) -> int:
    """An integer as Go reads it. Raises ValueError."""
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError("expected an integer") from None


def parse_positive(text: str) -> int:
    """An integer of at least 1. Raises ValueError."""
    count = parse_integer(text)
    if count < 1:
        raise ValueError("expected at least 1")
    return count


def parse_delay(text: str) -> float:
    """A duration of more than nothing. Raises ValueError."""
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError("expected more than 0s")
    return seconds
