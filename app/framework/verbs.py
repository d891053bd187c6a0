"""Verbs that a feature adds to the command line, and requests that an agent carries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from app.framework.commands import left_behind
from app.framework.options import parse_duration
from app.kube.client import Client, get_or_none
from app.kube.errors import CommandError, WrongCommandError
from app.kube.resources import Resource

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


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. ``text``: what it asks, for people; ``goes_on``: what it goes on with when the command is
    interrupted; ``ended_by``: what its deletion does then.

    ``report`` is given the object each ``seconds``: it says what is new, and returns the exit code once it has ended.
    """

    resource: Resource
    body: Json
    text: str
    goes_on: str
    ended_by: str
    seconds: float
    report: Callable[[Call, Json], Awaitable[int | None]]

    async def make(self, call: Call) -> int:
        """Create it; with ``--wait`` follow it. The exit code. Raises CommandError and KubeError."""
        name = self.body["metadata"]["name"]
        called = f"{self.resource.kind} {call.namespace}/{name}"
        look = f"kubectl get {self.resource.plural}.{self.resource.group} {name} -n {call.namespace}"
        with left_behind(lambda: f"{called} may have been made, see: {look}"):
            await call.client.create(self.resource, self.body, call.namespace, field_manager="pykruise")
        call.say(f"{called}: {self.text}{' (dry run)' if call.dry_run else ''}")
        if call.dry_run or not call.flag("wait"):
            return 0
        end = look.replace("get", "delete", 1)
        with left_behind(lambda: f"{called} goes on {self.goes_on}, see: {look}; what {self.ended_by}: {end}"):
            return await self._followed(call, name, called)

    async def _followed(self, call: Call, name: str, called: str) -> int:
        while True:
            found: Json | None = await get_or_none(call.client, self.resource, name, call.namespace)
            if found is None:
                raise CommandError(f"{called}: was deleted")
            code = await self.report(call, found)
            if code is not None:
                return code
            await call.client.clock.sleep(self.seconds)


class LastSaid:
    """What was said last of each of several things, so that only news is said."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def is_news(self, thing: str, text: str) -> bool:
        """Whether that was not said of the thing last; from now on it was."""
        known = self._last.get(thing) == text
        self._last[thing] = text
        return not known
