"""What people are told of a StatefulSet's Pods, in OpenKruise's words (AS-123)."""

from __future__ import annotations

from app.workloads.engine.kind import Owner
from app.workloads.engine.wording import Wording


class StatefulSetWording(Wording):
    """Texts of events."""

    __slots__ = ()

    def created(self, owner: Owner, pod: str) -> str:
        """A Pod was created."""
        return f"create Pod {pod} in StatefulSet {owner.name} successful"

    def not_created(self, owner: Owner, pod: str, why: str, body: str) -> str:  # noqa: ARG002
        """A creation was refused."""
        return f"create Pod {pod} in StatefulSet {owner.name} failed error: {why}"

    def deleted(self, owner: Owner, pod: str) -> str:
        """A Pod was deleted."""
        return f"delete Pod {pod} in StatefulSet {owner.name} successful"

    def not_deleted(self, owner: Owner, pod: str, why: str) -> str:
        """A deletion was refused."""
        return f"delete Pod {pod} in StatefulSet {owner.name} failed error: {why}"
