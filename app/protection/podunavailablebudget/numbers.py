"""How many Pods have to stay available, and how many may go (PUB-34 … PUB-37, § B5). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from app.kube.intorpercent import scaled

#: How many Pods a workload wants that does not say (PUB-34).
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Expected:
    """How many Pods there are meant to be. ``gone``: their workload is gone or on its way out, or never was."""

    replicas: int
    gone: bool = False


def desired_available(max_unavailable: int | str | None, min_available: int | str | None, expected: Expected) -> int:
    """How many Pods have to stay available. Raises ``IntOrPercentError`` for a value that is neither number nor
    percentage."""
    given, unavailable = (min_available, False) if max_unavailable is None else (max_unavailable, True)
    if given is None:
        return 0
    replicas = expected.replicas
    number = scaled(given, max(replicas, 0), round_up=True)
    if expected.gone:
        # PUB-96, PUB-125: nothing is to stay of what is going, or a namespace could not be deleted.
        return 0
    return max(0, replicas - number if unavailable else number)


def allowed(current: int, desired: int) -> int:
    """How many available Pods may become unavailable now."""
    return max(0, current - desired)
