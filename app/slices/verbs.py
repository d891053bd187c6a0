"""Commands that a slice brings with options of its own, and that tell how far they are while they work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from app.kube.client import Client
from app.kube.errors import WrongCommandError
from app.slices.options import parse_duration

#: In seconds; what a field of 32 bits holds.
_LONGEST: Final = 2**31


@dataclass(frozen=True, slots=True)
class Option:
    """``--name VALUE``, or ``--name`` alone where it is a ``flag``; ``short`` without its dash. ``takes``: what stands
    for the value in the help."""

    name: str
    help: str
    flag: bool = False
    short: str = ""
    default: str = ""
    takes: str = "TEXT"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a command. ``say`` prints a line at once; ``connection``: the kubeconfig file and the context that
    were given, for another program that is to speak to the same cluster; ``dry_run``: nothing that the client writes
    is stored, so there is nothing to wait for."""

    client: Client
    namespace: str
    arguments: Sequence[str]
    options: Mapping[str, str | bool]
    say: Callable[[str], None]
    connection: tuple[str, str] = ("", "")
    dry_run: bool = False

    def text(self, name: str) -> str:
        """The value of an option."""
        return str(self.options.get(name) or "")

    def flag(self, name: str) -> bool:
        """Whether it was given."""
        return bool(self.options.get(name))

    def number(self, name: str) -> int:
        """The value of an option that is a whole number from 0. Raises WrongCommandError."""
        text = self.text(name)
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise WrongCommandError(f"--{name}: {text!r} is no whole number from 0")
        return int(text)

    def seconds(self, name: str) -> int:
        """The seconds of a duration such as ``90s``, ``5m`` or ``90``. Raises WrongCommandError."""
        text = self.text(name)
        try:
            found = float(text) if text.isascii() and text.isdigit() else parse_duration(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < _LONGEST:
            raise WrongCommandError(f"--{name}: {text!r} is not a duration; write it like 90s, 5m or 1h30m")
        return ceil(found)

    def object_name(self, *words: str) -> str:
        """The name in ``pod/NAME``, ``pod NAME`` or ``NAME``, where ``words`` are those of the kind. Raises
        WrongCommandError."""
        parts = [part for one in self.arguments for part in one.split("/")]
        if len(parts) == 2 and parts[0].lower() in words:
            parts = parts[1:]
        if len(parts) != 1 or not parts[0]:
            raise WrongCommandError(f"{' '.join(self.arguments)}: expected {words[0]}/NAME")
        return parts[0]


@dataclass(frozen=True, slots=True)
class LongVerb:
    """``pykruise NAME ARGUMENTS OPTIONS``. ``run`` returns the exit code; it raises CommandError or KubeError."""

    name: str
    help: str
    arguments: str
    options: tuple[Option, ...]
    run: Callable[[Call], Awaitable[int]]
