"""Whether two image references mean the same image (PM-120)."""

from __future__ import annotations

from app.kube.images import parse_image


def has_digest(text: str) -> bool:
    """Whether the reference names its content by digest."""
    image = parse_image(text)
    return image is not None and bool(image.digest)


def same_image(one: str, other: str) -> bool:
    """With two digests repository and digest decide, otherwise repository and tag; what cannot be read is never equal.

    Short names are completed, since a Pod's status shows the full name and its spec mostly the short one.
    """
    first, second = parse_image(one), parse_image(other)
    if first is None or second is None or first.repository != second.repository:
        return False
    if first.digest and second.digest:
        return first.digest == second.digest
    return (first.tag or "latest") == (second.tag or "latest")
