"""What a SidecarSet means where it says nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.sidecarset.kind import with_defaults


def defaulted(spec: dict[str, Any], version: str = "v1beta1") -> dict[str, Any]:
    whole = {"apiVersion": f"apps.kruise.io/{version}", "kind": "SidecarSet", "metadata": {"name": "s"}, "spec": spec}
    before = copy.deepcopy(whole)
    found = with_defaults(whole)
    assert whole == before
    return dict(found["spec"])


@pytest.mark.behaviour("SS-5")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_strategies_and_limits(version: str) -> None:
    assert defaulted({}, version) == {
        "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": 1, "partition": 0},
        "injectionStrategy": {},
        "revisionHistoryLimit": 10,
    }


@pytest.mark.behaviour("SS-5")
def test_given_values_are_kept_including_zero() -> None:
    spec = {
        "updateStrategy": {"type": "NotUpdate", "maxUnavailable": 0, "partition": "20%"},
        "injectionStrategy": {"revision": {"policy": "Partial"}, "paused": True},
        "revisionHistoryLimit": 0,
        "patchPodMetadata": [{"annotations": {"a": "b"}, "patchPolicy": "Overwrite"}],
    }
    assert defaulted(spec) == spec


@pytest.mark.behaviour("SS-5")
def test_policies_of_revision_and_metadata() -> None:
    found = defaulted({"injectionStrategy": {"revision": {}}, "patchPodMetadata": [{"annotations": {"a": "b"}}]})
    assert found["injectionStrategy"]["revision"] == {"policy": "Always"}
    assert found["patchPodMetadata"][0]["patchPolicy"] == "Retain"


@pytest.mark.behaviour("SS-5", "SS-44")
def test_default_positions_of_sidecars() -> None:
    found = defaulted(
        {"containers": [{"name": "a", "image": "i:1"}], "initContainers": [{"name": "b", "image": "i:1"}]}
    )
    common = {
        "image": "i:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "shareVolumePolicy": {"type": "disabled"},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "upgradeStrategy": {"upgradeType": "ColdUpgrade"},
    }
    assert found["containers"] == [{"name": "a", "podInjectPolicy": "BeforeAppContainer", **common}]
    assert found["initContainers"] == [{"name": "b", "podInjectPolicy": "AfterAppContainer", **common}]


@pytest.mark.behaviour("SS-6", "SS-9")
def test_source_of_transferred_env() -> None:
    sources = [
        {"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}, "envName": "A"},
        {"sourceContainerNameFrom": {}, "envName": "A"},
        {"sourceContainerName": "app", "envName": "A"},
    ]
    found = defaulted({"containers": [{"name": "a", "transferEnv": sources}]})["containers"][0]["transferEnv"]
    assert found[0]["sourceContainerNameFrom"]["fieldRef"]["apiVersion"] == "v1"
    # Upstream panics on the second: it names no source, and is left alone.
    assert found[1:] == sources[1:]


@pytest.mark.behaviour("SS-23", "SS-12")
@pytest.mark.parametrize("policy", [{}, {"targetContainersNameRegex": ""}])
def test_an_empty_target_pattern_is_defaulted_before_hashing(policy: dict[str, str]) -> None:
    found = defaulted({"containers": [{"name": "a", "resourcesPolicy": policy}]})
    assert found["containers"][0]["resourcesPolicy"] == {"targetContainersNameRegex": ".*"}


@pytest.mark.behaviour("SS-7")
def test_volumes_are_defaulted() -> None:
    assert defaulted({"volumes": [{"name": "v"}]})["volumes"] == [{"name": "v", "emptyDir": {}}]


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
    """Return whether ``whole`` still says everything ``part`` said; what was empty may have been filled."""
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
