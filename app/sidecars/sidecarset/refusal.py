"""The refusal of a Pod that a SidecarSet, not the Pod, is the cause of."""

from __future__ import annotations

from app.pods.draft import PodRefusedError


class InjectionRefusedError(PodRefusedError):
    """A Pod cannot be created while these SidecarSets apply to it (SS-120: each is told)."""

    def __init__(self, message: str, *sets: str) -> None:
        super().__init__(message)
        self.sets = sets
