"""The list of slices: the one place outside its own folder where a kind is named.

Everything else that the manager, the sandbox and the command line know of a kind follows from its ``SLICE``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from app.api.kind import KindDefinition
    from app.slices import Slice

#: One line per slice, in the order in which what they declare is listed.
FOLDERS: Final[list[str]] = [
    "app.workloads.newpods",
    "app.sidecars.sidecarset",
    "app.sidecars.launchpriority",
    "app.sidecars.terminator",
    "app.workloads.cloneset",
    "app.workloads.statefulset",
    "app.workloads.daemonset",
    "app.workloads.uniteddeployment",
    "app.workloads.broadcastjob",
    "app.workloads.advancedcronjob",
    "app.workloads.ephemeraljob",
    "app.protection.deletion",
    "app.protection.podunavailablebudget",
    "app.placement.workloadspread",
    "app.placement.persistentpodstate",
    "app.operations.imagepull",
    "app.operations.containerrecreate",
    "app.operations.podprobe",
    "app.operations.resourcedistribution",
]


@cache
def slices() -> tuple[Slice, ...]:
    """The slices of this build. Their kinds are known to conversion from now on."""
    from app.api import registry
    from app.slices import Slice

    found: list[Slice] = []
    for folder in FOLDERS:
        declared = import_module(f"{folder}.slice").SLICE
        if not isinstance(declared, Slice):
            raise TypeError(f"{folder}.slice: SLICE is no Slice")
        found.append(declared)
    registry.register(kind for one in found for kind in one.kinds)
    return tuple(found)


def kinds() -> tuple[KindDefinition, ...]:
    """The kinds of this build."""
    return tuple(sorted((kind for one in slices() for kind in one.kinds), key=lambda kind: kind.crd_name))


def reconciled_kinds() -> tuple[KindDefinition, ...]:
    """The kinds whose objects somebody here acts on; the others of this build are only read and judged."""
    acting = (one for one in slices() if one.controllers or one.background)
    return tuple(sorted((kind for one in acting for kind in one.kinds), key=lambda kind: kind.crd_name))


def workloads() -> tuple[KindDefinition, ...]:
    """The kinds whose objects own Pods."""
    return tuple(kind for one in slices() for kind in one.workloads)
