"""Hostile input for everything that reads input from clients: ``python -m tests.fuzz --cases 20000``.

Cases are reviews for every registered webhook, conversions of every kind, input for decoders, and bytes for the HTTP
port. The same seed and number give the same case. No response may be a 5xx, take more than 300 ms of CPU time, or keep
more than 64 MiB of memory.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any, Final

from app.manager.process import GC_THRESHOLD
from app.manager.standalone import Standalone
from tests.fuzz import objects, targets
from tests.fuzz.cases import Cases
from tests.fuzz.judge import LARGE, MEMORY_BYTES, Judge, peak, reset_peak
from tests.fuzz.service import ALL_GATES, standalone_service
from tests.property.run import code_digest

ROOT: Final = Path(__file__).parent.parent.parent
#: Number of small cases measured together. They are measured one by one only if the batch keeps too much memory.
BATCH: Final = 500
#: Stop after this many failures.
ENOUGH: Final = 100


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every case holds, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000, help="number of cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="resume a stopped run")
    parser.add_argument("--progress", type=Path, default=ROOT / ".run/fuzz.json", help="progress file (%(default)s)")
    parser.add_argument("--case", type=int, metavar="NUMBER", help="judge one case and print it in full")
    parser.add_argument("--list", action="store_true", help="list the targets")
    options = parser.parse_args(arguments)
    logging.getLogger().addHandler(logging.NullHandler())
    logging.disable(logging.CRITICAL)
    return asyncio.run(_main(options))


async def _main(options: argparse.Namespace) -> int:
    standalone = await standalone_service(objects.sidecar_set(), gates=ALL_GATES)
    if options.list:
        print("\n".join(targets.all_of(standalone.registry)))
        return 0
    cases = Cases(standalone.registry, options.seed)
    gc.freeze()  # later collections visit only what cases leave behind
    gc.set_threshold(GC_THRESHOLD)  # as in the serving processes
    if options.case is not None:
        return await _one(standalone, cases, options.case)
    return await _Run(standalone, cases, options).run()


async def _one(standalone: Standalone, cases: Cases, number: int) -> int:
    logging.disable(logging.NOTSET)
    case = cases.case(number)
    print(case.what, case.path, case.body[:2000] or case.pieces, sep="\n")
    problems = await Judge(standalone).judge(case)
    print("\n".join(problems) or "holds")
    return 1 if problems else 0


class _Run:
    """Runs many cases and saves the progress in a file."""

    def __init__(self, standalone: Standalone, cases: Cases, options: argparse.Namespace) -> None:
        self._judge = Judge(standalone)
        self._cases = cases
        self._options = options
        self._code = code_digest("app", "tests/fuzz")
        self._next = 1
        self._failed: dict[int, str] = {}

    async def run(self) -> int:
        options = self._options
        if options.resume and options.progress.exists():
            self._take_up(json.loads(options.progress.read_text("utf-8")))
        began, first = time.monotonic(), self._next
        said = began
        while self._next <= options.cases and len(self._failed) < ENOUGH:
            await self._batch()
            self._keep()
            if (now := time.monotonic()) - said > 30:
                said = now
                print(f"{self._next - 1} cases, {len(self._failed)} failed", flush=True)
        seconds = time.monotonic() - began
        print(f"seed {options.seed}: {self._next - 1} cases ({self._next - first} in {seconds:.0f} s), ", end="")
        print(f"{len(self._failed)} failed")
        return 1 if self._failed else 0

    def _take_up(self, known: dict[str, Any]) -> None:
        """Resume a run with the same seed and code; repeat its failed cases."""
        if (
            known["seed"] != self._options.seed
            or known.get("code") != self._code
            or known["next"] > self._options.cases
        ):
            return
        self._next = min([known["next"], *map(int, known["failed"])])
        print(f"resuming with case {self._next}")

    async def _batch(self) -> None:
        numbers = range(self._next, min(self._next + BATCH, self._options.cases + 1))
        rest = reset_peak()
        measured = []
        for number in numbers:
            case = self._cases.case(number)
            self._note(number, case.what, await self._judge.judge(case))
            if len(self._failed) >= ENOUGH:
                return
            if len(case.body) >= LARGE:
                rest = reset_peak()
            else:
                measured.append(number)
        if peak() - rest > MEMORY_BYTES:
            for number in measured:
                case = self._cases.case(number)
                rest = reset_peak()
                await self._judge.judge(case)
                if (more := peak() - rest) > MEMORY_BYTES:
                    self._note(number, case.what, [f"held {more / 1024 / 1024:.0f} MiB more"])
        self._next = numbers.stop

    def _note(self, number: int, what: str, problems: list[str]) -> None:
        if problems:
            self._failed[number] = f"{'; '.join(problems)}: {what}"
            print(f"FAILED {self._failed[number][:600]!a}")
            print(f"  repeat: python -m tests.fuzz --seed {self._options.seed} --case {number}", flush=True)

    def _keep(self) -> None:
        path: Path = self._options.progress
        path.parent.mkdir(parents=True, exist_ok=True)
        known = {"seed": self._options.seed, "code": self._code, "next": self._next, "failed": self._failed}
        path.with_suffix(".new").write_text(json.dumps(known), "utf-8")
        path.with_suffix(".new").replace(path)


if __name__ == "__main__":
    sys.exit(main())
