"""The control groups of the nodes: one per node below a common group, in every hierarchy of the machine."""

from functools import partial
from pathlib import Path

from tests.cluster.process import wait_until

_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


def create(name: str) -> None:
    """Create the control group `name` (a path such as `pykruise/node-0`) where a kubelet will look for it."""
    hierarchies = _hierarchies()
    # If there are v1 hierarchies, the kubelet cannot use the v2 hierarchy.
    if any("unified" not in controllers for _, controllers in hierarchies):
        hierarchies = [(mount, controllers) for mount, controllers in hierarchies if "unified" not in controllers]
    for mount, controllers in hierarchies:
        group = mount
        for part in Path(name).parts:
            parent, group = group, group / part
            group.mkdir(exist_ok=True)
            if "cpuset" in controllers:
                # A new v1 group accepts no process until it has CPUs.
                for file in _CPUSET_FILES:
                    (group / file).write_text((parent / file).read_text())
            if "unified" in controllers:
                available = (parent / "cgroup.controllers").read_text().split()
                (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in available))


def remove(name: str) -> None:
    """Remove the control group `name` and all groups below it; their processes must have ended."""
    for mount, _ in _hierarchies():
        group = mount / name
        wait_until(partial(_removed, group), f"the control group {group} is empty", deadline=15)


def left_over(name: str) -> list[str]:
    """Return the hierarchies in which the control group `name` exists."""
    return [str(mount / name) for mount, _ in _hierarchies() if (mount / name).exists()]


def _removed(group: Path) -> bool:
    """Remove a group and those below it, as far as possible. A group is busy while its last process exits."""
    folders = sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True) if group.exists() else []
    for folder in [*folders, group]:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _hierarchies() -> list[tuple[Path, set[str]]]:
    """Return mount point and controllers of each hierarchy; `unified` stands for v2."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(maxsplit=2)
        mount = Path(before.split()[4])
        if kind == "cgroup":
            found.append((mount, set(options.split(","))))
        elif kind == "cgroup2":
            found.append((mount, {"unified"}))
    return found
