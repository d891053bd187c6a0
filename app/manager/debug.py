"""Debug pages: processes, queues, caches and the last decisions of a replica, as plain text lines."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.kube.controller import Controller
from app.kube.store import Store
from app.manager.shared import Life, Replica

#: How many keys of a queue are shown.
_KEYS_SHOWN: Final = 20
PAGES: Final[Mapping[str, str]] = {
    "processes": "what the supervisor knows of each process",
    "queues": "keys of each controller: waiting, worked on, failing",
    "caches": "objects each process holds",
    "decisions": "the last decisions of each webhook process, oldest first",
}


def debug_page(path: str, replica: Replica) -> str | None:
    """The page at a path, or None if there is none."""
    name = path.removeprefix("/debug").strip("/")
    if not name:
        return "".join(f"/debug/{page:<12} {what}\n" for page, what in PAGES.items())
    if name == "processes":
        return "".join(f"{line}\n" for line in _process_lines(replica))
    if name not in PAGES:
        return None
    lines: list[str] = []
    for shared in replica.details.values():
        details = shared.read()
        lines += details.debug.get(name, []) if details is not None else []
    if name == "decisions":
        lines.sort()
    return "".join(f"{line}\n" for line in lines) or "nothing yet\n"


def cache_lines(process: str, stores: Mapping[str, Store[Any]]) -> list[str]:
    """One line per cache."""
    return [
        f"{process:<12} {what:<24} {len(store):>7} objects{'' if store.ready else ', not filled yet'}"
        for what, store in stores.items()
    ]


def queue_lines(controllers: Iterable[Controller], now: float) -> list[str]:
    """The state of each controller's queue."""
    lines = []
    for controller in controllers:
        queue = controller.queue
        working = queue.processing
        lines.append(f"{controller.name}: {len(queue)} waiting, {len(working)} of {controller.workers} workers busy")
        for key, since in list(working.items())[:_KEYS_SHOWN]:
            failures = queue.failures(key)
            note = f", failed {failures} times in a row before" if failures else ""
            lines.append(f"  {key}: worked on for {now - since:.1f} s{note}")
        # Most of the time a key that fails waits for its next try.
        waiting = ((times, due, key) for key, (times, due) in queue.failing.items() if key not in working)
        for times, due, key in heapq.nlargest(_KEYS_SHOWN, waiting, key=lambda failing: failing[0]):
            lines.append(f"  {key}: failed {times} times in a row, again in {max(0.0, due - now):.1f} s")
    return lines


def _process_lines(replica: Replica) -> list[str]:
    lines = []
    now, monotonic = time.time(), time.monotonic()
    for name in replica.processes:
        life, state = replica.lives[name].read() or Life(), replica.state(name)
        told = "ready" if state.ready else "; ".join(f"{what}: {why}" for what, why in state.missing.items())
        parts = [f"process {state.pid or life.pid}", told or "starting"]
        if life.pid:
            parts.append(f"up {now - life.started:.0f} s, {life.restarts} restarts, {life.hangs} hangs")
        parts.append(f"last sign of life {max(0.0, monotonic - replica.last_beat(name)):.1f} s ago")
        if state.leading:
            parts.append("leads")
        elif state.leader:
            parts.append(f"leader is {state.leader}")
        lines.append(f"{name:<12} {', '.join(parts)}")
    return lines
