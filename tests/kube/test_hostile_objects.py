"""Watch events are read or refused, whatever they contain; `make fuzz` tries decoders."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from app.kube.wire import metadata_of, read_watch_event
from tests.kube.hostile import chain

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
