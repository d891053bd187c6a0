"""The list of features: the only module that names kinds outside of their own folders."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from app.api.kind import KindDefinition
    from app.framework.feature import Feature

#: Folder of each feature. Declarations are listed in this order.
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
    """Return the features of this build and register their kinds for conversion."""
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
    """Return the kinds of this build."""
    return tuple(sorted((kind for one in features() for kind in one.kinds), key=lambda kind: kind.crd_name))


def reconciled_kinds() -> tuple[KindDefinition, ...]:
    """Return the kinds that a component of this build acts on; other kinds are only read and validated."""
    acting = (one for one in features() if one.controllers or one.background)
    return tuple(sorted((kind for one in acting for kind in one.kinds), key=lambda kind: kind.crd_name))


def workloads() -> tuple[KindDefinition, ...]:
    """Return the kinds whose objects own Pods."""
    return tuple(kind for one in features() for kind in one.workloads)
