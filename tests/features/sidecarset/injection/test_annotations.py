"""The SidecarSet records on Pods, byte for byte, and the parsing of existing ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.api import names
from app.features.sidecarset.injection.metadata import (
    MAX_COMMAS,
    hash_record,
    injected_list,
    kept_members,
    record_entry,
)
from app.features.sidecarset.plan.settings import MAX_SETS, injected_sets
from app.kube.fielderrors import shortened
from app.pods.admission_draft import PodRefusedError

RECORDED = Path(__file__).parents[3] / "data" / "openkruise" / "01-created-v1beta1.json"
KEY = "kruise.io/sidecarset-hash"


@pytest.mark.behaviour("SS-56")
@pytest.mark.parametrize(
    ("present", "expected"), [("", "a,b"), ("b", "a,b"), ("z,a", "a,b,z"), (",z,,", "a,b,z"), ("z ,z", "a,b,z,z ")]
)
def test_the_injected_list_is_merged_and_sorted(present: str, expected: str) -> None:
    assert injected_list(present, ["b", "a"]) == expected


@pytest.mark.behaviour("SS-57")
def test_records_match_openkruise() -> None:
    objects = json.loads(RECORDED.read_text())["items"]
    sets = {o["metadata"]["name"]: o for o in objects if o["kind"] == "SidecarSet"}
    pods = [o for o in objects if o["kind"] == "Pod" and KEY in o["metadata"].get("annotations", {})]
    assert len(pods) == 5
    logs = sets["logs"]
    hashes = logs["metadata"]["annotations"]
    for pod in pods:
        annotations = pod["metadata"]["annotations"]
        now = json.loads(annotations[KEY])["logs"]["updateTimestamp"]
        entry = record_entry("logs", hashes[KEY], ["log"], logs["status"]["latestRevision"])
        bare = record_entry("logs", hashes[f"{KEY}-without-image"], ["log"], "")
        assert hash_record({}, [entry], now) == annotations[KEY]
        assert hash_record({}, [bare], now) == annotations[f"{KEY}-without-image"]
        # Reading and writing it yields the same text.
        assert hash_record(kept_members("shop/x", KEY, annotations[KEY]), [], now) == annotations[KEY]


@pytest.mark.behaviour("SS-57")
def test_empty_and_new_records() -> None:
    assert hash_record({}, [record_entry("s", "h", [], "")], "T") == (
        '{"s":{"updateTimestamp":"T","hash":"h","sidecarSetName":"s","sidecarList":[]}}'
    )


@pytest.mark.behaviour("SS-59")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "{}"),
        ("null", "{}"),
        ('{"s":"h"}', '{"s":{"updateTimestamp":null,"hash":"h","sidecarSetName":"s","sidecarList":null}}'),
        ('{"s":null}', '{"s":{"updateTimestamp":null,"hash":"","sidecarSetName":"","sidecarList":null}}'),
        (
            ' { "s" : {"sidecarList":["<"],"hash":"h","unknown":1,"updateTimestamp":"2026-01-02T05:04:05.9+02:00"} } ',
            '{"s":{"updateTimestamp":"2026-01-02T03:04:05Z","hash":"h","sidecarSetName":"","sidecarList":["\\u003c"]}}',
        ),
        (
            '{"s":{"updateTimestamp":"0001-01-01T00:00:00Z","controllerRevision":"r"}}',
            '{"s":{"updateTimestamp":null,"hash":"","sidecarSetName":"","sidecarList":null,"controllerRevision":"r"}}',
        ),
    ],
    ids=["empty", "null", "first form", "null entry", "another spelling", "zero time"],
)
def test_both_forms_round_trip_as_in_go(text: str, expected: str) -> None:
    assert hash_record(kept_members("shop/web-0", KEY, text), [], "now") == expected


@pytest.mark.behaviour("SS-59")
@pytest.mark.parametrize(
    "text",
    [
        "oops",
        "[]",
        '"s"',
        "{",
        '{"s":5}',
        '{"s":"h","t":{}}',
        '{"s":{"hash":5}}',
        '{"s":{"sidecarList":"x"}}',
        '{"s":{"sidecarList":[5]}}',
        '{"s":{"updateTimestamp":"yesterday"}}',
        '{"s":{"updateTimestamp":"2026-13-02T05:04:05Z"}}',
        '{"s":{"updateTimestamp":""}}',
        '{"s":{"updateTimestamp":"0001-01-01T00:00:00+05:00"}}',
        "[" * 5000,
        json.dumps({f"s{number}": "" for number in range(MAX_COMMAS + 2)}),
        json.dumps({"s": {"sidecarList": [""] * (MAX_COMMAS + 2)}}),
    ],
)
def test_other_values_are_refused_with_pod_and_annotation(text: str) -> None:
    with pytest.raises(PodRefusedError) as refused:
        kept_members("shop/web-0", KEY, text)
    message = str(refused.value)
    assert message.startswith(f"pod(shop/web-0) invalid annotations[{KEY}] value {shortened(text)}, unmarshal failed: ")
    assert len(message) < 800
    assert message.endswith("; remove the annotation")
    assert "failed: :" not in message
    assert refused.value.code == 400


@pytest.mark.behaviour("SS-56")
def test_a_pod_cannot_claim_more_sets_than_the_maximum() -> None:
    listed = ",".join(f"set-{number}" for number in range(30_000))
    assert len(injected_sets({names.SIDECARSET_INJECTED_LIST: listed})) == MAX_SETS
    assert injected_sets({names.SIDECARSET_INJECTED_LIST: "a, b,,c"}) == ("a", "b", "c")
    assert injected_sets({}) == ()
