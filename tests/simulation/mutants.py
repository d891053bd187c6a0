"""Mutants: planted faults that a simulated run must find: ``python -m tests.simulation.mutants``.

Each fault of ``mutants.yaml`` is planted in a copy of the code, and seeds run on the copy until one fails: first the
``seed`` of its entry, then 1, 2, 3 and so on. ``about`` and ``focus`` select what the runs are about.
The exit code is 1 if a mutant survives, if a fault matches no code, or if the simulation itself fails.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.planted import Fault, load, planted
from tests.simulation.process import with_fixed_hashes

ROOT = Path(__file__).resolve().parent.parent.parent
FAULTS = Path(__file__).resolve().parent / "mutants.yaml"
#: A seed that takes more seconds of processor time counts as hanging.
LIMIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a mutant. ``seed`` found it (None: no seed did); ``why`` is the violation."""

    name: str
    seed: int | None
    tried: int
    seconds: float
    why: str
    #: Number of tried seeds that found the fault.
    finders: int

    def __str__(self) -> str:
        text = f"seed {self.seed}" if self.seed is not None else "SURVIVED"
        share = f"{self.finders:>3} of {self.tried:>3}"
        return f"{self.name:<52} {text:<9} {share} {self.seconds:5.1f} s  {self.why[:150]}"


def main(arguments: Sequence[str] | None = None) -> int:
    with_fixed_hashes("tests.simulation.mutants", arguments)
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants (default: all)")
    parser.add_argument("--seeds", type=int, default=60, help="try 1 to this besides the one named (default: 60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one per CPU)")
    parser.add_argument("--afresh", action="store_true", help="from seed 1 on, whatever a patch names")
    parser.add_argument("--count", action="store_true", help="do not stop at the first: how many of the seeds find it")
    options = parser.parse_args(arguments)
    faults = [fault for fault in load(FAULTS) if not options.names or fault.name in options.names]
    if unknown := set(options.names) - {fault.name for fault in faults}:
        print(f"no mutant is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    _prepare()
    judge = partial(judged, seeds=options.seeds, afresh=options.afresh, count=options.count)
    results = []
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(judge, [fault.name for fault in faults]):
            results.append(Found(*found))
            print(results[-1], flush=True)
    survivors = sorted(found.name for found in results if found.seed is None)
    seconds = sum(found.seconds for found in results)
    print(
        f"{len(results)} mutants, {seconds:.0f} s of processor time, {len(survivors)} survived", *survivors, sep="\n  "
    )
    return 1 if survivors else 0


def _prepare() -> None:
    """Load dependencies and keys once for all mutants, but not the code under test."""
    importlib.import_module("tests.simulation.__main__")
    keys = importlib.import_module("tests.simulation.keys")
    keys.make_all()
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("app", "tests") and name != keys.__name__:
            del sys.modules[name]


class HangsError(KeyboardInterrupt):
    """A seed does not end. This is not an Exception, so that neither the code under test nor its loop handles it."""


def judged(name: str, seeds: int, afresh: bool, count: bool) -> tuple[str, int | None, int, float, str, int]:
    """Run seeds with the fault planted; return the fields of Found. Needs a new process, whose code it replaces."""
    began = time.process_time()
    fault = next(one for one in load(FAULTS) if one.name == name)
    first = [] if afresh or "seed" not in fault.options else [fault.options["seed"]]
    world = {key: fault.options[key] for key in ("about", "focus") if key in fault.options}
    candidates = [*first, *(seed for seed in range(1, seeds + 1) if seed not in first)]
    signal.signal(signal.SIGVTALRM, _hangs)
    tried: list[int] = []
    seed, why, finders = None, f"{len(candidates)} seeds hold", 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            _become(Path(folder), fault)
            for candidate in candidates:
                tried.append(candidate)
                signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_SECONDS)
                if broken := _broken(candidate, world):
                    finders += 1
                    seed, why = (candidate, broken) if seed is None else (seed, why)
                    if not count:
                        break
        except (Exception, HangsError) as error:  # noqa: BLE001 - whatever it is: nothing was found, and the others go on
            why = f"{error}\n{''.join(traceback.format_exception(error))[-2000:]}"
    return fault.name, seed, len(tried), time.process_time() - began, why, finders


def _become(copy: Path, fault: Fault) -> None:
    """Make this process load the code with the fault planted."""
    copied(copy)
    for path, text in planted(fault, ROOT).items():
        (copy / path.relative_to(ROOT)).write_text(text)
    sys.path.insert(0, str(copy))
    os.chdir(copy)


def _broken(seed: int, about: Mapping[str, str]) -> str:
    """Return the violation that a seed finds, or an empty string. Raises errors of the simulation itself."""
    world: Any = importlib.import_module("tests.simulation.world")
    runs: Any = importlib.import_module("tests.simulation.runs")
    if not str(world.__file__).startswith(os.getcwd()):
        raise RuntimeError(f"{world.__file__} is not the code that was patched")
    outcome = world.simulate(runs.Run(seed, **about), to_first=True)
    return next((line.partition(" BROKEN: ")[2] for line in outcome.broken), "")


def _hangs(*_: object) -> None:
    raise HangsError(f"hangs: {LIMIT_SECONDS:.0f} s of processor time are not enough")


def copied(to: Path) -> None:
    """Copy the code and its bytecode, and link the data."""
    folders = [ROOT / "app", ROOT / "policies", ROOT / "tests/kit", ROOT / "tests/simulation"]
    data = [path for folder in folders for path in folder.rglob("data") if path.is_dir()]
    for folder in folders:
        shutil.copytree(folder, to / folder.relative_to(ROOT), ignore=shutil.ignore_patterns("data"))
    for path in data:
        (to / path.relative_to(ROOT)).symlink_to(path)
    for name in ("__init__", "planted"):
        shutil.copy2(ROOT / f"tests/{name}.py", to / f"tests/{name}.py")


if __name__ == "__main__":
    sys.exit(main())
