"""What people are told about Pods and claims of a workload: texts of events. Pure.

CloneSet's by default; a workload whose texts differ has a subclass.
"""

from __future__ import annotations

from app.workloads.engine.kind import Owner


class Wording:
    """The messages of events, in OpenKruise's words. "": there is no such event."""

    __slots__ = ()

    def created(self, owner: Owner, pod: str) -> str:  # noqa: ARG002
        """A Pod was created (CS-156)."""
        return f"succeed to create pod {pod}"

    def not_created(self, owner: Owner, pod: str, why: str, body: str) -> str:  # noqa: ARG002
        """A creation was refused; ``body``: the beginning of what was to be created (CS-157)."""
        return f"failed to create pod: {why}, pod: {body}"

    def deleted(self, owner: Owner, pod: str) -> str:  # noqa: ARG002
        """A Pod was deleted."""
        return f"succeed to delete pod {pod}"

    def updated_in_place(self, pod: str, revision: str) -> str:
        """An update in place was begun."""
        return f"successfully update pod {pod} in-place(revision {revision})"

    def not_deleted(self, owner: Owner, pod: str, why: str) -> str:  # noqa: ARG002
        """A deletion was refused."""
        return f"failed to delete pod {pod}: {why}"
