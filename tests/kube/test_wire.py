from itertools import pairwise

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.cloneset.types import CloneSet
from app.kube import wire
from app.kube.objects import decode_pod
from app.kube.wire import LineSplitter, metadata_of, read_watch_event, typed_event_decoder
from tests.kube.hostile import chain

lines = st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=10)


@given(lines, st.lists(st.integers(0, 200), max_size=10))
def test_lines_are_complete_for_any_chunks(expected, cuts):
    data = b"".join(line + b"\n" for line in expected) + b"unfinished"
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = LineSplitter()
    got = [line for start, end in pairwise(places) for line in splitter.feed(data[start:end])]
    assert got == [line for line in expected if line]
    assert splitter.feed(b"\n") == [b"unfinished"]


def test_an_endless_line_is_refused(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 100)
    splitter = LineSplitter()
    for chunk in [b"x" * 60, b"\n"] * 3:  # complete lines do not count
        splitter.feed(chunk)
    assert splitter.feed(b"x" * 100) == []
    with pytest.raises(ValueError, match="the watch sent a line of more than 100 bytes"):
        splitter.feed(b"x")


def test_an_event_keeps_its_object_as_bytes():
    event = read_watch_event(b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"3"}, "x": 1}}')
    assert event.type == "ADDED"
    assert bytes(event.object) == b'{"metadata":{"name":"a","resourceVersion":"3"}, "x": 1}'
    assert metadata_of(event.object).resource_version == "3"


def test_a_struct_is_decoded_with_its_event():
    decode = typed_event_decoder(decode_pod)
    event = decode(b'{"type":"MODIFIED","object":{"metadata":{"name":"a"},"spec":{"nodeName":"n"},"more":[]}}')
    assert (event.type, event.object.metadata.name, event.object.spec.node_name) == ("MODIFIED", "a", "n")
    with pytest.raises(msgspec.MsgspecError):
        decode(b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}')


def test_other_decoders_read_objects_separately():
    assert typed_event_decoder(orjson.loads) is None
    assert typed_event_decoder(CloneSet.model_validate_json) is None


def test_unreadable_metadata_is_empty():
    assert metadata_of(b'{"metadata":{"name":7}}').name == ""
    assert metadata_of(b"nonsense").resource_version == ""


# ---- hostile events

FIELDS = ["metadata", "spec", "status", "data", "name", "namespace", "uid", "resourceVersion", "labels", "annotations",
          "ownerReferences", "managedFields", "creationTimestamp", "generation", "containers", "env", "valueFrom",
          "conditions", "state", "terminated", "exitCode", "limits", "x"]  # fmt: skip
HOSTILE = st.sampled_from(
    [
        *(b"9" * 5_000, b"-" + b"9" * 30, b"1e999", b"-0.0", b"nul"),
        *(b'"\xff\xfe"', b'"\\ud800"', b'"' + b"x" * 100_000 + b'"', b'"0000-01-01T00:00:00Z"'),
        *(chain(1_200), chain(20_000, "lists"), chain(3_000, "mixed")),
    ]
)
VALUES = st.recursive(
    HOSTILE | st.sampled_from([b"null", b"true", b"0", b'""', b'"a"', b"{}", b"[]"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: b"[" + b",".join(items) + b"]")
        | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4).map(
            lambda fields: b"{" + b",".join(b'"%s":%s' % (key.encode(), value) for key, value in fields.items()) + b"}"
        )
    ),
    max_leaves=12,
)


@given(VALUES | st.binary(max_size=50))
def test_any_event_is_read_or_refused(raw):
    for line in (raw, b'{"type":"ADDED","object":' + raw + b"}"):
        try:
            event = read_watch_event(line)
        except (ValueError, msgspec.MsgspecError):
            continue
        metadata_of(event.object)
