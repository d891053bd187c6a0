"""Defaults of SidecarSets with values of any type; tests/property checks which ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.sidecarset.defaults import with_defaults

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "5%", "busybox", "Always"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "x"]), inner, max_size=2),
    max_leaves=4,
)
CONTAINER_FIELDS = [
    "name", "image", "ports", "env", "resources", "livenessProbe", "lifecycle", "upgradeStrategy", "shareVolumePolicy",
    "transferEnv", "resourcesPolicy", "podInjectPolicy",
]  # fmt: skip
CONTAINERS = st.lists(st.dictionaries(st.sampled_from(CONTAINER_FIELDS), JSON, max_size=6) | JSON, max_size=2)
VOLUMES = st.lists(
    st.dictionaries(st.sampled_from(["name", "secret", "projected", "emptyDir"]), JSON) | JSON, max_size=2
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "containers": CONTAINERS | JSON,
        "initContainers": CONTAINERS,
        "volumes": VOLUMES | JSON,
        "updateStrategy": JSON,
        "injectionStrategy": JSON,
        "patchPodMetadata": JSON,
        "revisionHistoryLimit": JSON,
        "unknown": JSON,
    },
)


def contains(whole: Any, part: Any) -> bool:
    """Return whether ``whole`` keeps all values of ``part``; empty values may have been filled in."""
    if part in (None, "", 0, False) or part == {} or part == []:
        return True
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(contains(whole.get(key), value) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


@pytest.mark.behaviour("SS-5", "SS-6", "SS-7")
@given(SPECS | JSON)
def test_defaulting_is_idempotent_and_keeps_given_values_of_any_type(spec: Any) -> None:
    once = with_defaults({"metadata": {}, "spec": spec})
    assert with_defaults(once) == once
    assert contains(once["spec"], spec)
