import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.gojson import dumps_go
from app.kube.hashes import ALPHABET, fnv32, fnv32a, random_suffix, safe_encode

DATA = Path(__file__).parent.parent / "data" / "openkruise"


def recorded_revisions() -> list[Any]:
    """Return the data and hash label of every ControllerRevision recorded from OpenKruise."""
    found: dict[str, Any] = {}
    for path in sorted(DATA.glob("0*.json")):
        for item in json.loads(path.read_text())["items"]:
            if item["kind"] == "ControllerRevision":
                text = item["metadata"]["labels"]["controller.kubernetes.io/hash"]
                found[text] = pytest.param(item["data"], text, id=item["metadata"]["name"])
    return list(found.values())


@pytest.mark.parametrize(
    ("text", "fnv1", "fnv1a"),
    [
        # The test values of the FNV specification.
        (b"", 0x811C9DC5, 0x811C9DC5),
        (b"a", 0x050C5D7E, 0xE40C292C),
        (b"b", 0x050C5D7D, 0xE70C2DE5),
        (b"foobar", 0x31F0B262, 0xBF9CF968),
    ],
)
def test_fnv_hashes_match_the_specification(text: bytes, fnv1: int, fnv1a: int) -> None:
    assert fnv32(text) == fnv1
    assert fnv32a(text) == fnv1a


@pytest.mark.behaviour("PM-82")
def test_safe_encoding_has_no_vowels() -> None:
    assert safe_encode("0123456789") == "456789bcdf"


@pytest.mark.behaviour("SS-11", "PM-82")
@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_encoding_maps_each_character_by_its_code(text: str) -> None:
    assert safe_encode(text) == "".join("bcdfghjklmnpqrstvwxz2456789"[ord(char) % 27] for char in text)


@pytest.mark.behaviour("PM-82", "PM-84", "SS-73", "SS-74")
@pytest.mark.parametrize(("data", "expected"), recorded_revisions())
def test_openkruise_revisions_have_the_same_hash(data: dict[str, Any], expected: str) -> None:
    assert safe_encode(str(fnv32(dumps_go(data, sort_keys=True).encode() + b"0"))) == expected


@pytest.mark.behaviour("PW-13")
def test_a_random_suffix_has_only_letters_of_the_alphabet_and_follows_its_source() -> None:
    suffix = random_suffix(random.Random(1), 200)
    assert len(suffix) == 200
    assert set(suffix) <= set(ALPHABET)
    assert len(random_suffix(random.Random(1))) == 5
    assert random_suffix(random.Random(7)) == random_suffix(random.Random(7))
