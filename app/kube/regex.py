"""Regular expressions with RE2's syntax and guarantee: linear time, no look-around, no back-references.

Patterns in our kinds come from users and run inside admission, so they must not be able to cost exponential time, and
must mean what they mean to OpenKruise, whose Go uses RE2 as well (SS-122).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import re2

#: Longest accepted pattern. A Kubernetes name has at most 253 characters; no sensible pattern for names is longer
#: than this.
MAX_PATTERN_LENGTH = 1024
#: What the compiled program may take; a counted repetition of a repetition otherwise grows large.
_MAX_MEMORY = 1 << 20


class PatternError(ValueError):
    """A pattern that RE2 does not accept, or one that is too long."""


def _options() -> Any:
    options = re2.Options()
    # RE2 writes its complaints to standard error unless told not to; they reach the user in PatternError.
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    return options


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    text: str
    _compiled: Any

    def search(self, text: str) -> bool:
        """Whether the pattern occurs anywhere in ``text``; anchor it with ``^`` and ``$`` to match the whole."""
        # Bytes take a third of the time of text, whose offsets would be counted in characters. Lone surrogates, which
        # JSON can spell and UTF-8 cannot, are in no name.
        return self._compiled.search(text.encode("utf-8", "replace")) is not None


def compile_re2(text: str) -> Pattern:
    """The compiled form of ``text``. Raises :class:`PatternError` with the position or reason."""
    if len(text) > MAX_PATTERN_LENGTH:
        raise PatternError(f"pattern has {len(text)} characters, more than the {MAX_PATTERN_LENGTH} allowed")
    try:
        return Pattern(text, re2.compile(text, _options()))
    except UnicodeEncodeError as error:
        raise PatternError("error parsing regexp: not valid UTF-8") from error
    except re2.error as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        raise PatternError(f"error parsing regexp: {reason}") from error
