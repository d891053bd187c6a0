"""Commands that a feature adds to the command line, and requests that an agent carries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from app.framework.commands import left_behind
from app.kube.client import Client, get_or_none
from app.kube.errors import CommandError, WrongCommandError
from app.kube.fielderrors import parse_duration
from app.kube.resources import Resource

#: Durations must be shorter than this many seconds, to fit in an int32 field.
_LONGEST: Final = 2**31


@dataclass(frozen=True, slots=True)
class Option:
    """``--name VALUE``, or ``--name`` alone for a ``flag``. ``short`` has no dash. ``takes`` is the placeholder in the
    help."""

    name: str
    help: str
    flag: bool = False
    short: str = ""
    default: str = ""
    takes: str = "TEXT"


@dataclass(frozen=True, slots=True)
class Call:
    """One invocation of a command.

    ``say`` prints a line immediately. ``connection`` is the kubeconfig file and context on the command line, to pass to
    other programs. With ``dry_run``, the client's writes are not stored, so there is nothing to wait for.
    """

    client: Client
    namespace: str
    arguments: Sequence[str]
    options: Mapping[str, str | bool]
    say: Callable[[str], None]
    connection: tuple[str, str] = ("", "")
    dry_run: bool = False

    def text(self, name: str) -> str:
        return str(self.options.get(name) or "")

    def flag(self, name: str) -> bool:
        return bool(self.options.get(name))

    def number(self, name: str) -> int:
        """Return a non-negative integer option. Raises WrongCommandError."""
        text = self.text(name)
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise WrongCommandError(f"--{name}: {text!r} is not a non-negative integer")
        return int(text)

    def seconds(self, name: str) -> int:
        """Return the seconds of a duration such as ``90s``, ``5m`` or ``90``. Raises WrongCommandError."""
        text = self.text(name)
        try:
            found = float(text) if text.isascii() and text.isdigit() else parse_duration(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < _LONGEST:
            raise WrongCommandError(f"--{name}: {text!r} is not a duration such as 90s, 5m or 1h30m")
        return ceil(found)

    def object_name(self, *words: str) -> str:
        """Return the name in ``pod/NAME``, ``pod NAME`` or ``NAME``; ``words`` are the names of the kind.

        Raises WrongCommandError.
        """
        parts = [part for one in self.arguments for part in one.split("/")]
        if len(parts) == 2 and parts[0].lower() in words:
            parts = parts[1:]
        if len(parts) != 1 or not parts[0]:
            raise WrongCommandError(f"{' '.join(self.arguments)}: expected {words[0]}/NAME")
        return parts[0]


@dataclass(frozen=True, slots=True)
class Verb:
    """A separate command: ``pykruise NAME ARGUMENTS OPTIONS``, with the options common to all cluster commands.

    ``run`` returns the exit code; it raises CommandError or KubeError.
    """

    name: str
    help: str
    arguments: str
    options: tuple[Option, ...]
    run: Callable[[Call], Awaitable[int]]


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """A request for work by an agent, made by creating an object.

    ``text`` describes it to the user. If the command is interrupted, ``continuing`` says what the request keeps doing,
    and ``ended_by`` what deleting it does. ``report`` is called with the object every ``seconds`` seconds: it prints
    changes, and returns the exit code when the request is complete.
    """

    resource: Resource
    body: Json
    text: str
    continuing: str
    ended_by: str
    seconds: float
    report: Callable[[Call, Json], Awaitable[int | None]]

    async def make(self, call: Call) -> int:
        """Create the object; with ``--wait``, follow it. Returns the exit code. Raises CommandError and KubeError."""
        name = self.body["metadata"]["name"]
        called = f"{self.resource.kind} {call.namespace}/{name}"
        look = f"kubectl get {self.resource.plural}.{self.resource.group} {name} -n {call.namespace}"
        with left_behind(lambda: f"{called} may have been created; see: {look}"):
            await call.client.create(self.resource, self.body, call.namespace, field_manager="pykruise")
        call.say(f"{called}: {self.text}{' (dry run)' if call.dry_run else ''}")
        if call.dry_run or not call.flag("wait"):
            return 0
        end = look.replace("get", "delete", 1)
        with left_behind(lambda: f"{called} keeps {self.continuing}; see: {look}; to {self.ended_by}: {end}"):
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
    """Remembers the last message per key, so that only changes are printed."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def is_news(self, thing: str, text: str) -> bool:
        """Return whether the text differs from the last one for this key (``thing``), and remember it."""
        known = self._last.get(thing) == text
        self._last[thing] = text
        return not known
