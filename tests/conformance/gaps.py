"""Cases where the sandbox answers differently from a real server, by reason."""

from typing import Final

GAPS: Final[dict[str, tuple[str, ...]]] = {
    "no controller would remove the finalizers of volumes and claims, or the taint of a new node": (
        "printing-object-claim",
        "printing-object-node",
        "printing-object-volume",
    ),
    "differences in a refused change of a Pod's spec are listed by path, not as Go prints structs": (
        "subresources-ephemeral-change",
    ),
}

REASONS: Final = {case: reason for reason, cases in GAPS.items() for case in cases}
