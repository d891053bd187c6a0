"""Identity of the current webhook caller: a known API server or an unauthenticated client."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

#: The address of the webhook caller, if it is not known to be an API server. Set by the webhook port for the task that
#: answers; empty for known callers and outside of requests (controllers, standalone mode).
STRANGER: Final[ContextVar[str]] = ContextVar("stranger", default="")
#: Whether known callers send requests too. If so, the review of an unknown caller must have no side effects, like a dry
#: run.
LEAVES_NO_TRACE: Final[ContextVar[bool]] = ContextVar("leaves_no_trace", default=False)
