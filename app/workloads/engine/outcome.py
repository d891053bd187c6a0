"""What comes of writes: carried out side by side, and summed up for the status and for the next reconcile."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from app.kube.concurrently import concurrently
from app.kube.errors import UNANSWERED, Conflict, KubeError, is_namespace_ending, message_of
from app.pods.budget import RETRY_SECONDS

#: Requests of one workload that are under way at once.
MAX_CONCURRENT_WRITES: Final = 48
#: Seconds after which Pods are looked at again that somebody else wrote at the same time.
CONFLICT_DELAY: Final = 1.0

T = TypeVar("T")


class PodHeldError(KubeError):
    """A budget does not let the Pod go now: no failure, but a reason to ask again soon (PUB-90)."""


class PodGoneError(Exception):
    """The Pod is not there any more, or another one has its name."""


@dataclass(slots=True)
class Outcome:
    """What came of one part of a reconcile. ``message``: for the condition; '' for none; None: it says nothing new."""

    changed: bool = False
    error: KubeError | None = None
    message: str | None = ""
    requeue_after: list[float] = field(default_factory=list)
    #: The Pods that wait for the report of their node's agent, in a sentence.
    waiting: str = ""
    #: Why there are fewer Pods than wanted, in one word of the workload's; '' if there are enough.
    shortfall: str = ""


async def gather_results(work: Iterable[Awaitable[T]]) -> list[T | KubeError | PodGoneError]:
    """Side by side, with what each raised of the API server's refusals; other errors are raised."""

    async def caught(one: Awaitable[T]) -> T | KubeError | PodGoneError:
        try:
            return await one
        except (KubeError, PodGoneError) as error:
            return error

    return await concurrently((caught(one) for one in work), MAX_CONCURRENT_WRITES)


def refused_creations(refused: Collection[KubeError], *, made: int, retry_in: float, message: str) -> Outcome:
    """Return the outcome of creations of which some were refused; the next try is in ``retry_in`` seconds.

    In a namespace that is being terminated nothing is created any more: that is no failure, and nothing to retry.
    """
    if all(map(is_namespace_ending, refused)):
        return Outcome(changed=made > 0)
    error = next(iter(refused))
    error.retry_in = retry_in
    return Outcome(changed=made > 0, error=error, message=message)


def most_urgent(errors: Iterable[KubeError | None]) -> KubeError | None:
    """Return the error whose retry is due first."""
    return min((error for error in errors if error is not None), key=lambda error: error.retry_in, default=None)


def failures_of(outcomes: Mapping[str, Outcome]) -> dict[str, str | None]:
    """By the type of its condition, what went wrong; None: it went well. What has nothing new to say is left out."""
    said = {type_: outcome.message for type_, outcome in outcomes.items() if outcome.message is not None}
    return {type_: message or None for type_, message in said.items()}


def outcome_of(found: Sequence[object]) -> Outcome:
    """Changed if anything succeeded, or may have: what had no answer; the first refusal, of which conflicts, Pods that
    are gone and Pods that a budget holds are none."""
    errors = [one for one in found if isinstance(one, KubeError) and not isinstance(one, PodHeldError)]
    refusals = [error for error in errors if not isinstance(error, Conflict)]
    error = refusals[0] if refusals else errors[0] if errors else None
    return Outcome(
        changed=any(not isinstance(one, KubeError | PodGoneError) or isinstance(one, UNANSWERED) for one in found),
        error=error,
        message=message_of(refusals[0]) if refusals else "",
        requeue_after=[RETRY_SECONDS] if any(isinstance(one, PodHeldError) for one in found) else [],
    )
