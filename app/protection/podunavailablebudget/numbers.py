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
    replicas = expected.replicas
    if max_unavailable is not None:
        return max(0, replicas - scaled(max_unavailable, max(replicas, 0), round_up=True))
    if min_available is None:
        return 0
    if expected.gone:
        # PUB-125: nothing is to stay of what is going, or a namespace could not be deleted.
        scaled(min_available, 0, round_up=True)
        return 0
    return max(0, scaled(min_available, max(replicas, 0), round_up=True))


def allowed(current: int, desired: int) -> int:
    """How many available Pods may become unavailable now."""
    return max(0, current - desired)
