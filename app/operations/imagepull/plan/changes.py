"""What changed in a NodeImage, for those who asked for something there (IMG-40, IMG-106). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.kube.images import FamiliarImage
from app.operations.imagepull.objects import ImageEntry, ImageStatus, NodeImage

_NO_ENTRY: Final = ImageEntry()
_NO_STATUS: Final = ImageStatus()


def changed_images(old: NodeImage, new: NodeImage) -> set[str]:
    """The repositories of which something changed, in the spec or in the status."""
    found = _differing(old.spec.images, new.spec.images)
    return found | _differing(old.status.image_statuses, new.status.image_statuses)


def tag_changed(image: FamiliarImage, old: NodeImage, new: NodeImage) -> bool:
    """IMG-40: whether a tag changed, or what the tags of its repository have in common."""
    before, after = old.spec.images.get(image.name, _NO_ENTRY), new.spec.images.get(image.name, _NO_ENTRY)
    if (before.pull_secrets, before.sandbox_config) != (after.pull_secrets, after.sandbox_config):
        return True
    if before.tag(image.tag) != after.tag(image.tag):
        return True
    was = old.status.image_statuses.get(image.name, _NO_STATUS).tag(image.tag)
    return was != new.status.image_statuses.get(image.name, _NO_STATUS).tag(image.tag)


def has_other_tag(node_image: NodeImage, image: FamiliarImage, uid: str) -> bool:
    """IMG-106: whether the job asks for something else than this image."""
    return any(
        (name, tag.tag) != (image.name, image.tag) and any(owner.uid == uid for owner in tag.owner_references)
        for name, entry in node_image.spec.images.items()
        for tag in entry.tags
    )


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
