"""Judges many cases in several processes.

Cases are judged in chunks by worker processes that are replaced from time to time. They return only counts and a few
failures, so memory use does not grow with the number of cases.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.property.branches import BRANCHES, OTHERS
from tests.property.checks import counted, judge
from tests.property.generate import generate

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 250
#: Failures to print and keep in full; only the case numbers of the others are kept.
SHOWN = 10


@dataclass
class Progress:
    """The results of a run so far."""

    judged: int = 0
    branches: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)
    #: Reports of failures.
    texts: list[str] = field(default_factory=list)


def code_digest(*folders: str) -> str:
    """Return a digest of the code below these folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def judge_chunk(bounds: tuple[int, int]) -> Progress:
    """Judge a range of cases."""
    found = Progress()
    for seed in range(*bounds):
        outcome = judge(generate(seed))
        found.judged += 1
        found.branches.update(counted(outcome))
        if outcome.problems:
            found.failed.append(seed)
            if len(found.texts) < SHOWN:
                found.texts.append(outcome.report())
    return found


def run(progress: Progress, first: int, cases: int, jobs: int, say: Callable[[str], Any]) -> None:
    """Judge the cases in order, and note the progress after each chunk."""
    end = first + cases
    bounds = [(start, min(start + CHUNK, end)) for start in range(first, end, CHUNK)]
    started = told = time.monotonic()
    # All workers, replacements too, fork from one process that has imported the code.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.property.run"])
    with context.Pool(jobs, initializer=_quiet_worker, maxtasksperchild=40) as pool:
        for chunk in pool.imap(judge_chunk, bounds):
            progress.judged += chunk.judged
            progress.branches.update(chunk.branches)
            progress.failed += chunk.failed
            for text in chunk.texts[: SHOWN - len(progress.texts)]:
                say(text)
                progress.texts.append(text)
            if time.monotonic() - told >= 20:
                told = time.monotonic()
                say(f"{progress.judged} of {cases} cases, {len(progress.failed)} failed, {told - started:.0f} s")


def _quiet_worker() -> None:
    """Lower the process priority, leave signals to the first process, and do not log rejections."""
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)


def table(branches: Mapping[str, int], cases: int) -> Iterable[str]:
    """Return the table of counts: in how many cases each branch was reached."""
    width = max(len(b) for b in BRANCHES + OTHERS)
    for names in (BRANCHES, OTHERS):
        yield f"{'branch':{width}}   cases"
        for branch in names:
            yield f"{branch:{width}}  {branches.get(branch, 0):6}  {branches.get(branch, 0) / cases:6.2%}"
        yield ""


def shortfalls(branches: Mapping[str, int], cases: int) -> list[str]:
    """Return the branches reached in fewer than one case of a hundred, and a message if too few cases inject."""
    rare = [b for b in BRANCHES if branches.get(b, 0) * 100 < cases]
    too_few = [] if branches.get("injected", 0) * 100 >= 40 * cases else ["injected (at least 40 % of the cases)"]
    return rare + too_few
