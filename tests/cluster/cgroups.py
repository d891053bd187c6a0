"""The control groups of the nodes: one under a group of ours per node, in every hierarchy that the machine has."""

from functools import partial
from pathlib import Path

from tests.cluster.process import wait_until

_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


def create(name: str) -> None:
    """Make the control group `name` (a path such as `pykruise/node-0`) where a kubelet will look for it."""
    hierarchies = _hierarchies()
    # Beside hierarchies of the first version, the second's is there for others than the kubelet.
    if any("unified" not in controllers for _, controllers in hierarchies):
        hierarchies = [(mount, controllers) for mount, controllers in hierarchies if "unified" not in controllers]
    for mount, controllers in hierarchies:
        group = mount
        for part in Path(name).parts:
            parent, group = group, group / part
            group.mkdir(exist_ok=True)
            if "cpuset" in controllers:
                # A new group of the first version has no processors, and takes no process until it has.
                for file in _CPUSET_FILES:
                    (group / file).write_text((parent / file).read_text())
            if "unified" in controllers:
                available = (parent / "cgroup.controllers").read_text().split()
                (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in available))


def remove(name: str) -> None:
    """Remove the control group `name` and all below it; its processes have been ended."""
    for mount, _ in _hierarchies():
        group = mount / name
        wait_until(partial(_removed, group), f"the control group {group} is empty", deadline=15)


def left_over(name: str) -> list[str]:
    """The hierarchies in which the control group `name` exists."""
    return [str(mount / name) for mount, _ in _hierarchies() if (mount / name).exists()]


def _removed(group: Path) -> bool:
    """Remove what can be removed. A group whose last process is still on its way out is busy for a moment."""
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
    """Mount point and controllers of each hierarchy; `unified` stands for the second version's."""
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
