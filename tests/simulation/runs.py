"""What makes a run of the simulation, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.script import SMALL, Action, script


@dataclass(frozen=True, slots=True)
class Run:
    """What makes a run: the same values give the same history."""

    seed: int
    seconds: float = 240.0
    actions: int = 40
    #: Indexes into the script; None: all of it.
    keep: frozenset[int] | None = None
    #: Faults left out.
    without: tuple[str, ...] = ()
    #: Pods that a CloneSet is created with at most.
    size: int = SMALL

    @property
    def script(self) -> tuple[Action, ...]:
        """What happens in it."""
        made = script(self.seed, seconds=self.seconds, actions=self.actions, size=self.size)
        return made if self.keep is None else tuple(a for i, a in enumerate(made) if i in self.keep)

    @property
    def command(self) -> str:
        """How to see it again."""
        parts = [f"python -m tests.simulation --seeds {self.seed}"]
        if (self.seconds, self.actions) != (240.0, 40):
            parts.append(f"--seconds {self.seconds:g} --actions {self.actions}")
        if self.size != SMALL:
            parts.append(f"--size {self.size}")
        if self.keep is not None:
            parts.append(f"--keep {','.join(map(str, sorted(self.keep))) or 'none'}")
        if self.without:
            parts.append(f"--without {','.join(self.without)}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went."""

    run: Run
    broken: tuple[str, ...]
    digest: str
    writes: int
    virtual_seconds: float
    last: tuple[str, ...]
