"""The lifecycle hooks of CloneSets here: two labels that hold a Pod."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

#: The labels that hold a Pod before it is deleted and before it is updated in place.
DELETE_HOOK, UPDATE_HOOK = "example.com/drain", "example.com/weigh"
LIFECYCLE = {
    "preDelete": {"labelsHandler": {DELETE_HOOK: "true"}},
    "inPlaceUpdate": {"labelsHandler": {UPDATE_HOOK: "true"}},
}


def is_held(pod: Json, hook: str) -> bool:
    """Whether a hook holds the Pod."""
    return (pod["metadata"].get("labels") or {}).get(hook) == "true"
