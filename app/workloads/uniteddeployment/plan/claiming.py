"""Which workloads are those of a UnitedDeployment's subsets (UD-32, UD-33). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from app.workloads.uniteddeployment.plan.subsets import SubsetWorkload


@dataclass(frozen=True, slots=True)
class Claims:
    """What is to become of the workloads that were found; templates say of which kind they are."""

    #: Subset → its workload.
    existing: Mapping[str, SubsetWorkload]
    #: Owned, and wanted by nobody: of subsets that are gone, of other kinds, or a second one for a subset.
    surplus: Sequence[tuple[str, SubsetWorkload]]
    #: Owned, but somebody changed its labels so that the selector does not match any more.
    release: Sequence[tuple[str, SubsetWorkload]] = ()
    #: Nobody's, for subsets that have no workload.
    adopt: Sequence[SubsetWorkload] = ()


def claim(
    kind: str,
    subsets: Collection[str],
    owned: Mapping[str, Sequence[SubsetWorkload]],
    nobodys: Sequence[SubsetWorkload],
    matches: Callable[[Mapping[str, str]], bool],
) -> Claims:
    """``owned``: by template; ``nobodys``: those of ``kind`` without a controller; ``matches``: the selector.

    What was never owned is never deleted, so nothing is adopted that would be surplus.
    """
    existing: dict[str, SubsetWorkload] = {}
    surplus: list[tuple[str, SubsetWorkload]] = []
    release: list[tuple[str, SubsetWorkload]] = []
    for template, found in owned.items():
        for one in _oldest_first(found):
            if not matches(one.metadata.labels):
                release.append((template, one))
            elif template == kind and one.subset in subsets and one.subset not in existing:
                existing[one.subset] = one
            else:
                surplus.append((template, one))
    adopt: dict[str, SubsetWorkload] = {}
    for one in _oldest_first(nobodys):
        if one.subset in subsets and one.subset not in existing and matches(one.metadata.labels):
            adopt.setdefault(one.subset, one)
    return Claims(existing, surplus, release, list(adopt.values()))


def _oldest_first(found: Sequence[SubsetWorkload]) -> list[SubsetWorkload]:
    living = [one for one in found if one.metadata.deletion_timestamp is None]
    return sorted(living, key=lambda one: (str(one.metadata.creation_timestamp or ""), one.metadata.name))
