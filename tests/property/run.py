"""Judges many cases in several processes; a stopped run resumes from its progress file.

Cases are judged in chunks by worker processes that are replaced from time to time. They return only counts and a few
failures, so memory use does not grow with the number of cases.
"""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.property.branches import BRANCHES, OTHERS
from tests.property.checks import counted, judge
from tests.property.generate import generate

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 250
#: Failures to print and keep in full; only the case numbers of the others are kept.
SHOWN = 10


class CannotResumeError(Exception):
    """There is no progress to resume, or it belongs to another run."""


@dataclass
class Chunk:
    first: int
    cases: int
    branches: dict[str, int]
    failed: list[int]
    texts: list[str]


@dataclass
class Progress:
    """The state of a run. ``digest`` identifies the code, because counts from different code are not added up."""

    first: int
    cases: int
    digest: str
    done: list[int] = field(default_factory=list)
    branches: dict[str, int] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def judged(self) -> int:
        return sum(min(CHUNK, self.first + self.cases - start) for start in self.done)

    def add(self, chunk: Chunk) -> None:
        self.done.append(chunk.first)
        self.failed += chunk.failed
        for branch, count in chunk.branches.items():
            self.branches[branch] = self.branches.get(branch, 0) + count

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)), "utf-8")
        fresh.replace(path)


def code_digest(*folders: str) -> str:
    """Return a digest of all code that a judgment depends on."""
    digest = hashlib.sha256()
    for folder in folders or ("app", "tests/property"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def load(path: Path, first: int, cases: int, digest: str) -> Progress:
    """Return the saved progress of the same run with the same code. Raises CannotResumeError if there is none."""
    try:
        progress = Progress(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise CannotResumeError(f"nothing to resume: {path} does not exist") from None
    except (ValueError, TypeError) as error:
        raise CannotResumeError(f"cannot resume: {path} is not readable ({error}); start without --resume") from error
    if (progress.first, progress.cases) != (first, cases):
        raise CannotResumeError(
            f"cannot resume: {path} is of --seed {progress.first} --cases {progress.cases}; start without --resume"
        )
    if progress.digest != digest:
        raise CannotResumeError("cannot resume: the code has changed since the run was stopped; start without --resume")
    return progress


def judge_chunk(bounds: tuple[int, int]) -> Chunk:
    """Judge a range of cases."""
    first, end = bounds
    chunk = Chunk(first, end - first, {}, [], [])
    for seed in range(first, end):
        outcome = judge(generate(seed))
        for branch in counted(outcome):
            chunk.branches[branch] = chunk.branches.get(branch, 0) + 1
        if outcome.problems:
            chunk.failed.append(seed)
            if len(chunk.texts) < SHOWN:
                chunk.texts.append(outcome.report())
    return chunk


def run(progress: Progress, path: Path, jobs: int, say: Callable[[str], Any]) -> None:
    """Judge the remaining cases, saving the progress after each chunk."""
    done = set(progress.done)
    end = progress.first + progress.cases
    bounds = [(n, min(n + CHUNK, end)) for n in range(progress.first, end, CHUNK) if n not in done]
    shown, before, started, told = 0, progress.seconds, time.monotonic(), 0.0
    # All workers, replacements too, fork from one process that has imported the code.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.property.run"])
    with context.Pool(jobs, initializer=_quiet_worker, maxtasksperchild=40) as pool:
        for chunk in pool.imap_unordered(judge_chunk, bounds):
            progress.add(chunk)
            progress.seconds = before + time.monotonic() - started
            progress.save(path)
            for text in chunk.texts[: max(0, SHOWN - shown)]:
                say(text)
                shown += 1
            if progress.seconds - told >= 20:
                told = progress.seconds
                say(f"{progress.judged} of {progress.cases} cases, {len(progress.failed)} failed, {told:.0f} s")


def _quiet_worker() -> None:
    """Lower the process priority, leave signals to the first process, and do not log rejections."""
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)


def table(branches: dict[str, int], cases: int) -> Iterable[str]:
    """Return the table of counts: in how many cases each branch was reached."""
    width = max(len(b) for b in BRANCHES + OTHERS)
    for names in (BRANCHES, OTHERS):
        yield f"{'branch':{width}}   cases"
        for branch in names:
            yield f"{branch:{width}}  {branches.get(branch, 0):6}  {branches.get(branch, 0) / cases:6.2%}"
        yield ""


def shortfalls(branches: dict[str, int], cases: int) -> list[str]:
    """Return the branches reached in fewer than one case of a hundred, and a message if too few cases inject."""
    rare = [b for b in BRANCHES if branches.get(b, 0) * 100 < cases]
    too_few = [] if branches.get("injected", 0) * 100 >= 40 * cases else ["injected (at least 40 % of the cases)"]
    return rare + too_few
