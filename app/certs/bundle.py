"""Bundles without a protocol: what replicas publish when nobody tells them what the others serve.

Where certificates come from a folder or from somebody else, replicas learn of new ones at different times. Each makes
sure that its own CA is in the published bundle and leaves the others' there; a CA that this replica does not need is
taken out when it has stood there for as long as a step of a rotation takes. Who still needs it puts it back.
"""

from __future__ import annotations

from typing import Final

from app.certs.issue import CertificateSet, unexpired
from app.certs.rotation import blocks, joined
from app.kube.clock import Clock

#: How long a step of a rotation is left to reach everybody, unless told otherwise: a CA that this replica does not need
#: is left there for as long.
STEP_SECONDS: Final = 600.0


class SharedBundle:
    """The bundle as one replica would have it."""

    def __init__(self, clock: Clock, step_seconds: float = STEP_SECONDS) -> None:
        self._clock = clock
        self._step = step_seconds
        #: CAs that are not ours, and since when (monotonic) they have been there.
        self._others: dict[bytes, float] = {}
        self.text = b""

    def update(self, own: bytes, published: bytes) -> None:
        """Our CA, and what stands in the bundle that clients are told to trust at present, both PEM."""
        now = self._clock.monotonic()
        mine = blocks(own)
        there = blocks(unexpired(published, self._clock.now()))
        self._others = {block: self._others.get(block, now) for block in there if block not in mine}
        kept = [block for block in there if block in mine or now - self._others[block] < self._step]
        # In the order that is there: replicas that put their own first would never agree.
        self.text = joined(*kept, own)

    @property
    def next_step_in(self) -> float | None:
        """Seconds until a CA may be taken out; None: there is only ours."""
        if not self._others:
            return None
        return max(1.0, min(self._others.values()) + self._step - self._clock.monotonic())


class UnannouncedSource:
    """What all sources have in common where nobody tells us what the other replicas took from there."""

    def __init__(self, clock: Clock, step_seconds: float = STEP_SECONDS) -> None:
        self._clock = clock
        self._bundle = SharedBundle(clock, step_seconds)

    @property
    def bundle(self) -> bytes:
        """The CAs to publish, PEM."""
        return self._bundle.text

    @property
    def next_step_in(self) -> float | None:
        """When a CA nobody needs any more may be taken out."""
        return self._bundle.next_step_in

    def published(self, complete: bool) -> None:
        """Nothing depends on it."""

    def taken(self, found: CertificateSet, published: bytes) -> CertificateSet:
        """The set that is served from now on; its CA goes into the bundle."""
        self._bundle.update(found.ca_cert, published)
        return found
