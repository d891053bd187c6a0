"""Where the serving certificate comes from."""

from __future__ import annotations

from typing import Protocol

from app.certs.issue import CertificateSet


class CertificateSource(Protocol):
    """Where the serving certificate comes from: a Secret, a folder."""

    @property
    def bundle(self) -> bytes:
        """The CAs clients must trust, PEM."""
        ...

    @property
    def next_step_in(self) -> float | None:
        """Seconds until ``ensure`` may have more to do than reading; None: not known."""
        ...

    async def ensure(self, published: bytes = b"") -> CertificateSet:
        """The certificates to use now; ``published`` is what clients are told to trust, PEM."""
        ...

    def published(self, complete: bool) -> None:
        """Whether the bundle was seen in place everywhere just now."""
        ...
