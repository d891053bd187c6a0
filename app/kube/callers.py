"""Whose request is being answered: an API server's, or that of a caller who may be anybody."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

#: Whether the request that is being answered comes from a caller that is not known to be an API server. Set by the
#: webhook port for the task that answers; whatever has no caller (controllers, tests, standalone mode) is trusted.
STRANGER: Final[ContextVar[bool]] = ContextVar("stranger", default=False)
