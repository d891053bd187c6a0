"""Regular expressions with RE2's syntax and guarantees: linear time, no look-around, no back-references.

Patterns in our kinds come from users and run during admission, so they must not take exponential time. They must match
the same names as in OpenKruise, whose Go patterns have the same syntax. [SS-122]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import re2

#: The maximum pattern length. A Kubernetes name has at most 253 characters; no sensible pattern for names is longer
#: than this.
MAX_PATTERN_LENGTH = 1024
_OPTIONS = re2.Options()
# By default, RE2 prints errors to standard error; here they are reported in PatternError.
_OPTIONS.log_errors = False
# Limits the memory of a compiled pattern: nested counted repetitions could otherwise use any amount.
_OPTIONS.max_mem = 1 << 20


#: Go's wording for RE2's errors, where it differs.
_GO_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


class PatternError(ValueError):
    """A pattern that RE2 does not accept, or that is too long."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    text: str
    _compiled: Any

    def search(self, text: str) -> bool:
        """Return whether the pattern occurs anywhere in ``text``; anchor it with ``^`` and ``$`` to match the whole."""
        # Matching bytes takes a third of the time of matching text, whose offsets must be converted to characters. Lone
        # surrogates, valid in JSON but not in UTF-8, occur in no name.
        return self._compiled.search(text.encode("utf-8", "replace")) is not None


def compile_re2(text: str) -> Pattern:
    """Compile a pattern. Raises :class:`PatternError` with the position or reason."""
    if len(text) > MAX_PATTERN_LENGTH:
        raise PatternError(f"pattern has {len(text)} characters, more than the {MAX_PATTERN_LENGTH} allowed")
    try:
        return Pattern(text, re2.compile(text, _OPTIONS))
    except UnicodeEncodeError as error:
        raise PatternError("error parsing regexp: not valid UTF-8") from error
    except re2.error as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        words, _, part = str(reason).partition(": ")
        raise PatternError(f"error parsing regexp: {_GO_WORDS.get(words, words)}: `{part}`") from error
