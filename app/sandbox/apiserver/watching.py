"""Watchers, one per open watch. Each receives every commit at the moment it happens. A line is encoded once per event
and form, for all watchers. If a client reads too slowly, its watch is ended once too many lines are buffered; the
client then resumes from its last version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random
from typing import Final, Protocol, TypeAlias

import orjson

from app.kube.wire import INITIAL_EVENTS_END
from app.sandbox.apiserver.status import Refusal
from app.sandbox.apiserver.storage import Collection, Entry, Event, EventType, Storage

#: Converts entries to the watched version.
Convert: TypeAlias = Callable[[Sequence[Entry]], Awaitable[Sequence[Entry]]]

#: Lines that a watcher may buffer before its watch is ended.
MAX_BEHIND: Final = 20_000
#: Seconds between bookmarks, as on real servers.
BOOKMARK_SECONDS: Final = 60.0
#: Minimum duration of a watch without ``timeoutSeconds``, in seconds. The maximum is twice as long.
MIN_WATCH_SECONDS: Final = 1800.0


class Form(Protocol):
    """How entries are shown: as objects, table rows or metadata."""

    @property
    def key(self) -> object:
        """Return the key of the form. Forms with equal keys encode entries identically."""
        ...

    def encode(self, entry: Entry) -> bytes:
        """Return the entry as JSON."""
        ...

    def bookmark(self, metadata: dict[str, object]) -> bytes:
        """Return the JSON of a bookmark's object, which has only metadata."""
        ...


class Watcher:
    """The lines of one watch, as chunks of bytes. :meth:`chunks` ends when the watch ends."""

    def __init__(
        self,
        storage: Storage,
        collection: Collection,
        matches: Callable[[Entry], bool] | None,
        form: Form,
        *,
        bookmarks: bool,
        convert: Convert | None = None,
    ) -> None:
        self._storage = storage
        self._collection = collection
        self._matches = matches
        self._form = form
        self._bookmarks = bookmarks
        #: Set if the stored version differs from the watched one; lines are then encoded on delivery.
        self._convert = convert
        self._lines: list[bytes | tuple[EventType, Entry]] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        #: Only changes after this version are sent. It is in the future if the storage was restored from a backup.
        self._after = 0
        self._timers: list[asyncio.TimerHandle] = []

    # ---- producer

    def start(self, seconds: float) -> None:
        """Receive every commit from now on, for at most this many seconds."""
        self._collection.sinks[self] = None
        loop = asyncio.get_running_loop()
        self._timers = [loop.call_later(seconds, self._expire)]
        if self._bookmarks:
            self._timers.append(loop.call_later(BOOKMARK_SECONDS, self._tick))

    def existing(self, *, announce_end: bool) -> None:
        """Start with an ADDED event for each existing object, then a bookmark if ``announce_end``."""
        for entry in self._collection.select(""):
            if self._matches is None or self._matches(entry):
                self._push(self._shown("ADDED", entry))
        if announce_end:
            self.bookmark({INITIAL_EVENTS_END: "true"})

    def replay(self, revision: int) -> None:
        """Send only changes after a version: those in the history, and later ones as they happen."""
        self._after = revision
        for event in self._collection.since(revision):
            self.offer(event)

    def refuse(self, refusal: Refusal) -> None:
        """Send an ERROR event and end the watch."""
        self._push(b'{"type":"ERROR","object":' + orjson.dumps(refusal.as_json()) + b"}\n")
        self._ended = True

    def offer(self, event: Event) -> None:
        """Buffer a line for the event if its object is or was selected."""
        if event.revision <= self._after:
            return
        matches = self._matches
        if matches is None:
            self._push(self._encoded(event, event.type, event.after))
            return
        before = event.before is not None and matches(event.before)
        if event.type == "DELETED":
            if before:
                self._push(self._encoded(event, "DELETED", event.after))
        elif matches(event.after):
            self._push(self._encoded(event, "MODIFIED" if before else "ADDED", event.after))
        elif before and event.before is not None:
            # The object left the selection: send its last selected state with the new version.
            last = event.before.obj
            metadata = {**last["metadata"], "resourceVersion": str(event.revision)}
            entry = Entry(event.before.key, {**last, "metadata": metadata}, event.revision, event.before.managed)
            self._push(self._encoded(event, "DELETED", entry))

    def _shown(self, type_: EventType, entry: Entry) -> bytes | tuple[EventType, Entry]:
        return (type_, entry) if self._convert is not None else _line(type_, self._form.encode(entry))

    def _encoded(self, event: Event, type_: EventType, entry: Entry) -> bytes | tuple[EventType, Entry]:
        if self._convert is not None:
            return (type_, entry)
        key = (type_, self._form.key)
        line = event.lines.get(key)
        if line is None:
            line = event.lines[key] = _line(type_, self._form.encode(entry))
        return line

    def bookmark(self, annotations: dict[str, str] | None = None) -> None:
        """Send a bookmark with the current version."""
        if not self._bookmarks or self._ended or self._storage.revision < self._after:
            return
        metadata: dict[str, object] = {"resourceVersion": str(self._storage.revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        self._push(b'{"type":"BOOKMARK","object":' + self._form.bookmark(metadata) + b"}\n")

    def _push(self, line: bytes | tuple[EventType, Entry]) -> None:
        if self._ended:
            return
        self._lines.append(line)
        if len(self._lines) > MAX_BEHIND and self in self._collection.sinks:
            self._expire()
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _tick(self) -> None:
        self.bookmark()
        self._timers.append(asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self._tick))
        del self._timers[1]

    def _expire(self) -> None:
        self._ended = True
        self._collection.sinks.pop(self, None)
        for timer in self._timers:
            timer.cancel()
        self._wake()

    # ---- consumer

    def close(self) -> None:
        """End the watch."""
        self._expire()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all lines since the last chunk as one chunk."""
        try:
            while True:
                if self._lines:
                    lines, self._lines = self._lines, []
                    yield b"".join(await self._made(lines))
                elif self._ended:
                    return
                else:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
        finally:
            self._expire()

    async def _made(self, lines: list[bytes | tuple[EventType, Entry]]) -> list[bytes]:
        """Return the lines, after converting and encoding those that need it."""
        waiting = [line[1] for line in lines if isinstance(line, tuple)]
        if not waiting or self._convert is None:
            return [line for line in lines if isinstance(line, bytes)]
        converted = iter(await self._convert(waiting))
        return [
            _line(line[0], self._form.encode(next(converted))) if isinstance(line, tuple) else line for line in lines
        ]


def _line(type_: str, encoded: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), encoded)


def watch_seconds(asked: int | None, rng: Random) -> float:
    """Return the duration of a watch: as requested, or 30 to 60 minutes at random."""
    return float(asked) if asked else MIN_WATCH_SECONDS * (1 + rng.random())
