"""One run of a control plane or cluster: its folder, and the record from which it can always be cleaned up.

Every change a run makes to the machine is written to `run.json` before or as it is made, so that the next run can undo
it even if this process is killed.
"""

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from tests.cluster import cgroups, network, process
from tests.cluster.errors import ClusterError
from tests.cluster.paths import locked, runs_dir
from tests.cluster.process import ProcessId

_RECORD = "run.json"
_GONE = ".gone-"


@dataclass(slots=True)
class Run:
    """A run's folder and record. `facts` is what users of the run need: addresses, tokens, node names."""

    directory: Path
    owner: ProcessId | None = (
        None  # the run is stale once this process ends; None: it is complete and lasts until stopped
    )
    detached: bool = False  # whether it outlives the process that starts it
    processes: dict[str, ProcessId] = field(default_factory=dict)
    cgroup: str | None = None
    before: network.Before | None = None  # the machine's network before
    folders: list[Path] = field(default_factory=list)  # mount points created on the machine, removed if still empty
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def create(cls, name: str | None, *, detached: bool) -> "Run":
        """Create a run: with a `name`, the only one of that name on this machine; with None, one of many. Stale runs
        are cleaned up first."""
        with locked(runs_dir() / "lock"):
            clean_stale_runs()
            # The folder is renamed once it contains the record, so no run is seen without a record.
            run = cls(Path(tempfile.mkdtemp(prefix=".new-", dir=runs_dir())), ProcessId.of(os.getpid()), detached)
            run.save()
            target = runs_dir() / (name or f"control-plane-{run.directory.name.removeprefix('.new-')}")
            if target.exists():
                shutil.rmtree(run.directory)
                other = cls.load(target).owner
                way_out = f"process {other.pid} has it" if other else "end it with: python -m tests.cluster down"
                raise ClusterError(f"a cluster is already running in {target}; {way_out}")
            run.directory = run.directory.rename(target)
            return run

    @classmethod
    def load(cls, directory: Path) -> "Run":
        record = json.loads((directory / _RECORD).read_text())
        before = record["before"]
        return cls(
            directory=directory,
            owner=ProcessId(*record["owner"]) if record["owner"] else None,
            detached=record["detached"],
            processes={name: ProcessId(*identity) for name, identity in record["processes"].items()},
            cgroup=record["cgroup"],
            before=network.Before(**before) if before else None,
            folders=[Path(folder) for folder in record["folders"]],
            facts=record["facts"],
        )

    @classmethod
    def named(cls, name: str) -> "Run | None":
        directory = runs_dir() / name
        return cls.load(directory) if (directory / _RECORD).exists() else None

    def save(self) -> None:
        """Write the record atomically."""
        record = {
            "owner": [self.owner.pid, self.owner.started] if self.owner else None,
            "detached": self.detached,
            "processes": {name: [identity.pid, identity.started] for name, identity in self.processes.items()},
            "cgroup": self.cgroup,
            "before": self.before.as_dict() if self.before else None,
            "folders": [str(folder) for folder in self.folders],
            "facts": self.facts,
        }
        new = self.directory / f".{_RECORD}"
        new.touch(mode=0o600)
        new.write_text(json.dumps(record, indent=2))
        new.rename(self.directory / _RECORD)

    def log(self, name: str) -> Path:
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        return logs / f"{name}.log"

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: int = DEVNULL,
    ) -> ProcessId:
        """Start a process of this run. `destroy` ends it, and so does the end of this process unless detached."""
        identity = process.start(
            argv, self.log(name), dies_with_us=not self.detached, environment=environment, stdin=stdin
        )
        self.processes[name] = identity
        self.save()
        return identity

    def complete(self) -> None:
        """Mark the run as complete: from now on, a detached run needs no owner."""
        if self.detached:
            self.owner = None
        self.save()

    def watched(self, *names: str) -> dict[str, tuple[ProcessId, Path]]:
        """Return the processes `names` in the form that `process.wait_until` expects."""
        return {name: (self.processes[name], self.log(name)) for name in names}

    def is_stale(self) -> bool:
        """Return whether the run is abandoned: its owner has ended, or no process of a detached run is alive."""
        if self.owner is not None:
            return not self.owner.is_alive()
        return bool(self.processes) and not any(identity.is_alive() for identity in self.processes.values())

    def destroy(self) -> None:
        """End every process, undo everything that the record names, and remove the folder."""
        for identity in reversed(self.processes.values()):
            # A node is an `unshare` whose child is the node's first process. When the child ends, the kernel ends all
            # processes of the node before `unshare` returns, so kill the child first.
            for child in identity.children():
                process.end(child)
            process.end(identity)
        if self.before is not None:
            network.tear_down(self.before)
        if self.cgroup is not None:
            cgroups.remove(self.cgroup)
        for folder in reversed(self.folders):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        # Removing the folder would also empty what is mounted below it.
        if mounted := mounts_below(self.directory):
            raise ClusterError(f"still mounted: {', '.join(mounted)}; unmount, then: python -m tests.cluster down")
        if self.before is None:
            shutil.rmtree(self.directory)
        else:  # nodes unpack images there
            remove_meanwhile(self.directory)


def mounts_below(directory: Path) -> list[str]:
    """Return the mount points at or below `directory` that this process sees."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if Path(point).is_relative_to(directory)]


def remove_meanwhile(folder: Path) -> None:
    """Move `folder` away at once and empty it in the background, because 100,000 files may take minutes. This process
    waits for that before it ends; if it is killed, the next `clean_stale_runs` continues."""
    us = ProcessId.of(os.getpid())
    assert us is not None
    gone = Path(tempfile.mkdtemp(prefix=f"{_GONE}{us.pid}-{us.started}-", dir=runs_dir()))
    folder.rename(gone / folder.name)
    _empty(gone)


def _empty(gone: Path) -> None:
    atexit.register(Popen(["nice", "rm", "-rf", "--", str(gone)], stdin=DEVNULL, start_new_session=True).wait)


def clean_stale_runs() -> None:
    """Clean up runs whose owner was killed. The caller must hold the lock of the folder of all runs."""
    for gone in runs_dir().glob(f"{_GONE}*"):
        pid, started = map(int, gone.name.removeprefix(_GONE).split("-")[:2])
        if not ProcessId(pid, started).is_alive():
            _empty(gone)
    for record in runs_dir().glob(f"*/{_RECORD}"):
        try:
            run = Run.load(record.parent)
        except FileNotFoundError:  # the owner has just removed it
            continue
        if run.is_stale():
            run.destroy()
