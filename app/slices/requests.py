"""An object by which a command asks somebody else to act: it is created, told of, and followed until it has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from app.kube.errors import CommandError
from app.kube.lookup import get_or_none
from app.kube.resources import Resource
from app.slices.interrupted import left_behind
from app.slices.verbs import Call

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
