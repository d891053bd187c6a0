"""What deletion protection has to know of a kind."""

from __future__ import annotations

from dataclasses import dataclass

from app.api.kind import KindDefinition


@dataclass(frozen=True, slots=True)
class Protected:
    """The label policy.kruise.io/delete-protection is obeyed for objects of this kind.

    ``cascading``: what the value ``Cascading`` looks at before it lets an object go: ``replicas`` (``spec.replicas``),
    or nothing.
    """

    kind: KindDefinition
    cascading: str = ""
