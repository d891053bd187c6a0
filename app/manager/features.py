"""The list of features: the one place outside its own folder where a kind is named.

Everything else that the manager, the sandbox and the command line know of a kind follows from its ``FEATURE``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from app.api.kind import KindDefinition
    from app.framework.feature import Feature

#: One line per feature, in the order in which what they declare is listed.
FOLDERS: Final[list[str]] = [
    "app.features.podreadiness",
    "app.features.sidecarset",
    "app.features.launchpriority",
    "app.features.sidecarterminator",
    "app.features.cloneset",
    "app.features.statefulset",
    "app.features.daemonset",
    "app.features.uniteddeployment",
    "app.features.broadcastjob",
    "app.features.advancedcronjob",
    "app.features.ephemeraljob",
    "app.features.deletionprotection",
    "app.features.podunavailablebudget",
    "app.features.workloadspread",
    "app.features.persistentpodstate",
    "app.features.imagepull",
    "app.features.containerrecreate",
    "app.features.podprobe",
    "app.features.resourcedistribution",
]


@cache
def features() -> tuple[Feature, ...]:
    """The features of this build. Their kinds are known to conversion from now on."""
    from app.api.kind import register
    from app.framework.feature import Feature

    found: list[Feature] = []
    for folder in FOLDERS:
        declared = import_module(f"{folder}.feature").FEATURE
        if not isinstance(declared, Feature):
            raise TypeError(f"{folder}.feature: FEATURE is not a Feature")
        found.append(declared)
    register(kind for one in found for kind in one.kinds)
    return tuple(found)


def kinds() -> tuple[KindDefinition, ...]:
    """The kinds of this build."""
    return tuple(sorted((kind for one in features() for kind in one.kinds), key=lambda kind: kind.crd_name))


def reconciled_kinds() -> tuple[KindDefinition, ...]:
    """The kinds whose objects somebody here acts on; the others of this build are only read and judged."""
    acting = (one for one in features() if one.controllers or one.background)
    return tuple(sorted((kind for one in acting for kind in one.kinds), key=lambda kind: kind.crd_name))


def workloads() -> tuple[KindDefinition, ...]:
    """The kinds whose objects own Pods."""
    return tuple(kind for one in features() for kind in one.workloads)
