"""Which revision of a SidecarSet a new Pod gets: the current spec or a recorded one. Pure; randomness is passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.api import names
from app.kube.intorpercent import is_percent, percentage
from app.kube.objects import ControllerRevision
from app.kube.selectors import Selector, compile_selector


@dataclass(frozen=True, slots=True)
class RevisionChoice:
    """SS-68, SS-70: ``spec.injectionStrategy.revision`` with what of the update strategy it depends on."""

    revision_name: str
    custom_version: str
    #: policy Partial, and updates are not paused: the recorded revision is not for every Pod.
    partial: bool
    #: With Partial: Pods outside of it get the recorded revision. None matches all.
    update_selector: Selector | None
    #: With Partial: how many of the others, out of 100, get the recorded revision.
    percent: int

    @property
    def field(self) -> str:
        """The field that names the revision, with its value, for messages."""
        if self.revision_name:
            return f"spec.injectionStrategy.revision.revisionName {self.revision_name}"
        return f"spec.injectionStrategy.revision.customVersion {self.custom_version}"


def revision_choice(revision: Mapping[str, Any] | None, update_strategy: Mapping[str, Any]) -> RevisionChoice | None:
    """The choice a set leaves, from the JSON of its spec; None if every Pod gets the current spec.

    Raises SelectorError for an unusable ``updateStrategy.selector``.
    """
    revision_name = (revision or {}).get("revisionName") or ""
    custom_version = (revision or {}).get("customVersion") or ""
    if revision is None or not (revision_name or custom_version):
        return None
    selector = update_strategy.get("selector")
    partition = update_strategy.get("partition")
    return RevisionChoice(
        revision_name=revision_name,
        custom_version=custom_version,
        partial=revision.get("policy") == "Partial" and not update_strategy.get("paused"),
        update_selector=compile_selector(selector) if selector is not None else None,
        percent=percentage(partition) if isinstance(partition, str) and is_percent(partition) else 0,
    )


def takes_recorded(choice: RevisionChoice, labels: Mapping[str, str], random: Callable[[], float]) -> bool:
    """SS-70: whether a Pod with these labels gets the recorded revision. ``random()`` is in [0, 1)."""
    if not choice.partial:
        return True
    if choice.update_selector is not None and not choice.update_selector.matches(labels):
        return True
    return choice.percent > 0 and random() * 100 < choice.percent


def recorded_revision(
    set_name: str, choice: RevisionChoice, revisions: Iterable[ControllerRevision]
) -> ControllerRevision | None:
    """SS-68: the revision the choice names, among those of the manager's namespace; None if it is not there.

    A revision is one of this set if its label says so; one that names another set is not taken (SS-34).
    """
    own = [r for r in revisions if r.metadata.labels.get(names.SIDECARSET_NAME) == set_name]
    if choice.revision_name:
        return next((r for r in own if r.metadata.name == choice.revision_name), None)
    tagged = [r for r in own if r.metadata.labels.get(names.SIDECARSET_CUSTOM_VERSION) == choice.custom_version]
    return max(tagged, key=lambda revision: revision.revision, default=None)
