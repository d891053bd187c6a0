"""Several things of which each may fail for itself."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TypeVar

from app.certs.issue import CertificateError
from app.kube.errors import Forbidden, KubeError, NotFound, TransportError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Attempts:
    """Goes on with the rest where one object cannot be read or written (a missing right), and tells of it at the end.

    Without a connection there is no rest.
    """

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        #: Whether somebody else was faster with an object: it is not as we wanted it.
        self.overtaken = False

    @property
    def may_succeed(self) -> bool:
        """Whether what was not done can be expected to be done before long; what we have no right to cannot."""
        return self.overtaken or not all(isinstance(failure, Forbidden) for failure in self.failures)

    async def result(self, attempt: Awaitable[T]) -> T | None:
        """What the attempt gives; None if it failed. Raises NotFound and TransportError."""
        try:
            return await attempt
        except (NotFound, TransportError):
            raise
        except (KubeError, CertificateError) as error:
            self.failures.append(error)
            return None

    def raise_first(self) -> None:
        """Raise the first failure; the others are logged."""
        for error in self.failures[1:]:
            logger.warning("registering webhooks failed: %s", error)
        if self.failures:
            raise self.failures[0]
