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
