"""Whose request is being answered: an API server's, or that of a caller who may be anybody."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

#: The address of the caller whose request is being answered, if it is not known to be an API server. Set by the webhook
#: port for the task that answers; empty for known callers and where there is no caller (controllers, standalone mode).
STRANGER: Final[ContextVar[str]] = ContextVar("stranger", default="")
#: Whether that stranger asks while known callers do too: then its review must leave no trace, like a dry run.
LEAVES_NO_TRACE: Final[ContextVar[bool]] = ContextVar("leaves_no_trace", default=False)
