"""Feature gates and flags of features, and parsers for flag values. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from app.kube.fielderrors import parse_duration

#: Returns whether a feature gate is enabled.
Enabled: TypeAlias = Callable[[str], bool]


def gate_is_off(gate: str, *others: str) -> str:
    """Return the error for a request that needs a disabled feature gate: OpenKruise's text, and how to enable it.

    ``others`` are disabled gates that must be enabled too.
    """
    wanted = ",".join(f"{one}=true" for one in (gate, *others))
    return (
        f"feature-gate {gate} is not enabled; start the manager with --feature-gates={wanted} "
        f"(featureGates in the values of the chart)"
    )


class Stage(StrEnum):
    """Maturity of a feature; ``AllAlpha`` and ``AllBeta`` turn a whole stage on or off."""

    ALPHA = "Alpha"
    BETA = "Beta"
    #: A gate that OpenKruise does not have. AllAlpha and AllBeta exclude it, so they mean the same as in OpenKruise.
    OURS = "Ours"


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate and its effect when enabled."""

    name: str
    effect: str
    default: bool = False
    stage: Stage = Stage.OURS
    #: If false, the gate is accepted for compatibility with OpenKruise manifests but has no effect; the manager logs
    #: this when it is set.
    acts: bool = True


FlagValue: TypeAlias = str | bool | int | float


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its parser, default and help text."""

    name: str
    default: FlagValue
    parse: Callable[[str], FlagValue]
    help: str
    shorthand: str = ""
    #: If false, the flag is accepted for compatibility with OpenKruise manifests but has no effect; the manager logs
    #: this when it is set.
    meaningful: bool = True


def parse_bool(text: str) -> bool:
    """Parse a boolean as Go's strconv.ParseBool does. Raises ValueError."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError("expected true or false")


def parse_integer(text: str) -> int:
    """Parse an integer as Go does. Raises ValueError."""
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError("expected an integer") from None


def parse_positive(text: str) -> int:
    """Parse an integer of at least 1. Raises ValueError."""
    count = parse_integer(text)
    if count < 1:
        raise ValueError("expected at least 1")
    return count


def parse_delay(text: str) -> float:
    """Parse a duration greater than zero. Raises ValueError."""
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError("expected more than 0s")
    return seconds
