import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.gojson import GoTypeError
from app.features.sidecarset.hashes import sidecarset_hashes

DATA = Path(__file__).parent.parent.parent / "data" / "openkruise"
HASH = "kruise.io/sidecarset-hash"
HASH_WITHOUT_IMAGE = "kruise.io/sidecarset-hash-without-image"

CONTAINER = {"name": "container1", "image": "test-image"}
PLAIN = "w26c4x8fz245642fdv499b464248f974xddx4x55z5dw55bc6x66464fxz77dc78"


def sidecarsets(value: Any) -> Iterator[dict[str, Any]]:
    """Every SidecarSet with recorded hashes anywhere in a document."""
    if isinstance(value, dict):
        if value.get("kind") == "SidecarSet" and HASH in ((value.get("metadata") or {}).get("annotations") or {}):
            yield value
        for nested in value.values():
            yield from sidecarsets(nested)
    elif isinstance(value, list):
        for nested in value:
            yield from sidecarsets(nested)


@pytest.mark.behaviour("SS-10", "SS-11", "SS-12", "SS-14")
@pytest.mark.parametrize(
    ("containers", "init_containers", "expected"),
    [
        pytest.param([CONTAINER], None, PLAIN, id="one container"),
        pytest.param([CONTAINER], [CONTAINER], PLAIN, id="a plain init container does not count"),
        pytest.param(
            [CONTAINER],
            [{**CONTAINER, "restartPolicy": "Always"}],
            "4xwx4d4844vd4v9x79wb4xbxf4xb29475cc4446v8cz2c2f2f5c5bw448vd42z8w",
            id="an init container that keeps running does",
        ),
        pytest.param(
            None,
            [CONTAINER],
            "x5vwx9w6vv4dv72c9w4c2f6v74fbwx545b45bbfz6z2dvf8w887xw86fvcb4cf48",
            id="no containers at all, as recorded of a set with a plain init container alone",
        ),
    ],
)
def test_hashes_match_the_vectors(containers: Any, init_containers: Any, expected: str) -> None:
    assert sidecarset_hashes(containers, init_containers).hash == expected


@pytest.mark.behaviour("SS-10", "SS-14")
def test_the_hash_without_image_ignores_images() -> None:
    plain = "8wzddb4dvv9c6x8zdc77z4z75987424f457dfv6724ddw6zbdx467wz5x24fc759"
    assert sidecarset_hashes([CONTAINER], None).without_image == plain
    init = {**CONTAINER, "restartPolicy": "Always"}
    first, second = sidecarset_hashes([CONTAINER], [init]), sidecarset_hashes([CONTAINER], [{**init, "image": "other"}])
    assert first.hash != second.hash
    assert first.without_image == second.without_image


@pytest.mark.behaviour("SS-12")
def test_an_empty_pattern_of_a_resources_policy_is_hashed_like_the_default() -> None:
    def hashed(pattern: str) -> str:
        policy = {"targetContainersMode": "sum", "targetContainersNameRegex": pattern, "resourcesExpr": {}}
        return sidecarset_hashes([{**CONTAINER, "resourcesPolicy": policy}], None).hash

    assert hashed("") == hashed(".*") != hashed("^main$")


@pytest.mark.behaviour("SS-3", "SS-8", "SS-12", "SS-13", "SS-14")
@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_openkruise_sets_have_the_same_hashes(path: Path) -> None:
    for one in sidecarsets(json.loads(path.read_text())):
        annotations, spec = one["metadata"]["annotations"], one["spec"]
        hashes = sidecarset_hashes(spec.get("containers"), spec.get("initContainers"))
        assert hashes == (annotations[HASH], annotations[HASH_WITHOUT_IMAGE]), one["metadata"]["name"]


@pytest.mark.behaviour("SS-14")
def test_the_recorded_answers_contain_sets() -> None:
    recorded = [one for path in DATA.glob("*.json") for one in sidecarsets(json.loads(path.read_text()))]
    assert len(recorded) > 100
    assert len({one["metadata"]["annotations"][HASH] for one in recorded}) >= 5


@pytest.mark.behaviour("SS-10")
@given(st.sampled_from(["name", "image", "args", "env", "volumeMounts"]), st.booleans())
def test_hashing_does_not_modify_its_input(field: str, init: bool) -> None:
    container = {**CONTAINER, field: {"args": ["a"], "env": [{"name": "A"}]}.get(field, CONTAINER.get(field))}
    before = copy.deepcopy(container)
    sidecarset_hashes([container], [{**container, "restartPolicy": "Always"}] if init else None)
    assert container == before


def test_a_mistyped_field_is_refused_with_its_path() -> None:
    with pytest.raises(GoTypeError, match=r"spec\.initContainers\[0\]\.image: expected string"):
        sidecarset_hashes([CONTAINER], [{**CONTAINER, "image": 1}])
    with pytest.raises(GoTypeError, match=r"spec\.containers\[0\]\.upgradeStrategy: expected object"):
        sidecarset_hashes([{**CONTAINER, "upgradeStrategy": "HotUpgrade"}], None)
