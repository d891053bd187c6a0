"""The parameters and the outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.plan import Plan, plan
from tests.simulation.script import SMALL, Action
from tests.simulation.workloads import DEFAULT, SUBJECTS


@dataclass(frozen=True, slots=True)
class Run:
    """The parameters of a run: the same values give the same history."""

    seed: int
    #: Seconds and actions of the storm; None: drawn from the seed.
    seconds: float | None = None
    actions: int | None = None
    #: Indexes into the script; None: all of it.
    keep: frozenset[int] | None = None
    #: Faults to leave out.
    without: tuple[str, ...] = ()
    #: Maximum number of Pods with which a workload is created.
    size: int = SMALL
    #: A focus of its subject, repeated instead of a storm.
    focus: str = ""
    #: Its subject (``tests/simulation/workloads``).
    about: str = DEFAULT

    @property
    def deadline_factor(self) -> float:
        """Return the factor of all deadlines; 1 for a small run."""
        return 1.0 if self.size == SMALL else 3.0

    @property
    def replicas(self) -> int:
        wanted = SUBJECTS[self.about].focuses[self.focus].replicas if self.focus else None
        return wanted if wanted is not None else 3 if self.seed % 4 == 0 else 2

    @property
    def plan(self) -> Plan:
        return plan(self.seed, self.seconds, self.actions)

    @property
    def script(self) -> tuple[Action, ...]:
        if self.focus:
            return ()
        plan = self.plan
        made = SUBJECTS[self.about].script(self.seed, seconds=plan.seconds, actions=plan.actions, size=self.size)
        return made if self.keep is None else tuple(a for i, a in enumerate(made) if i in self.keep)

    @property
    def command(self) -> str:
        """Return the command that repeats the run."""
        parts = [f"python -m tests.simulation --seeds {self.seed}"]
        if self.about != DEFAULT:
            parts.append(f"--about {self.about}")
        if self.focus:
            parts.append(f"--focus '{self.focus}'")
        if self.seconds is not None:
            parts.append(f"--seconds {self.seconds:g}")
        if self.actions is not None:
            parts.append(f"--actions {self.actions}")
        if self.size != SMALL:
            parts.append(f"--size {self.size}")
        if self.keep is not None:
            parts.append(f"--keep {','.join(map(str, sorted(self.keep))) or 'none'}")
        if self.without:
            parts.append(f"--without {','.join(self.without)}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run."""

    run: Run
    broken: tuple[str, ...]
    digest: str
    writes: int
    virtual_seconds: float
    last: tuple[str, ...]
    cpu_seconds: float = 0.0
    #: Maximum number of Pods at a time.
    most_pods: int = 0
