"""The rows of a section are computed once per change and always match the existing objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dashboard.board import Lacking, SectionRows
from app.features.sidecarset.kind import SIDECAR_SET
from app.framework.dashboard import DashboardSection, Row, Shown, Stored
from app.kube.objects import Pod, decode_pod
from app.kube.resources import ObjectKey

pytestmark = pytest.mark.behaviour("CLI-60")
POD = decode_pod(b'{"metadata": {"name": "p"}, "status": {"phase": "Running"}}')


class Counted:
    """A section whose rows name their sources and count how often they were computed."""

    def __init__(self) -> None:
        self.made = 0
        self.section = DashboardSection("sets", "Sets", SIDECAR_SET, Row, self.row, place=lambda row: row.shown.about)

    def row(self, stored: Stored, pods: Collection[ObjectKey]) -> Row:
        self.made += 1
        about = f"{stored['place']} {stored['name']} {sorted(key.name for key in pods)}"
        return Row(name=stored["name"], shown=Shown(about=about))


class Judge:
    """Says that each Pod lacks the objects that a test names."""

    def __init__(self) -> None:
        self.names: Sequence[str] = ()

    def update(self, stored: Stored) -> None: ...

    def remove(self, name: str) -> None: ...

    def lacking(self, pod: Pod, namespace_labels: Mapping[str, str]) -> Sequence[str]:
        return self.names


def stored(name: str, place: int = 0) -> dict[str, Any]:
    return {"name": name, "place": place}


def test_a_row_is_rendered_again_only_when_its_object_or_pods_change() -> None:
    counted, judge = Counted(), Judge()
    lacking = Lacking(judge)
    rows = SectionRows(counted.section, lacking)
    for name in ("a", "b", "c"):
        rows.object_changed(ObjectKey("", name), stored(name))
    assert [row.name for row in rows.shown()["items"]] == ["a", "b", "c"]
    assert rows.shown() is rows.shown()
    assert counted.made == 3
    rows.object_changed(ObjectKey("", "a"), stored("a", 1))
    assert [row.name for row in rows.shown()["items"]] == ["b", "c", "a"]
    assert counted.made == 4
    judge.names = ("b", "gone")
    rows.mark_lacking(lacking.judge(ObjectKey("shop", "p"), POD, {}))
    assert rows.shown()["items"][0].shown.about == "0 b ['p']"
    assert counted.made == 5
    rows.mark_lacking(lacking.judge(ObjectKey("shop", "p"), POD, {}))
    rows.object_changed(ObjectKey("", "c"), None)
    assert (rows.shown()["total"], counted.made) == (2, 5)


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("object"), NAMES, st.none() | st.integers(0, 3)),
    st.tuples(st.just("pod"), st.sampled_from(["p", "q"]), st.none() | st.lists(NAMES, unique=True)),
    st.just(("look", "", None)),
)


@given(st.lists(STEPS, max_size=30))
def test_rows_match_the_objects_after_any_events(steps: list[tuple[str, str, Any]]) -> None:
    counted, judge = Counted(), Judge()
    lacking = Lacking(judge)
    rows = SectionRows(counted.section, lacking)
    objects: dict[str, int] = {}
    lacks: dict[str, list[str]] = {}
    for what, name, value in steps:
        if what == "object":
            rows.object_changed(ObjectKey("", name), None if value is None else stored(name, value))
            objects.pop(name, None)
            objects |= {} if value is None else {name: value}
        elif what == "pod":
            judge.names = value or ()
            rows.mark_lacking(lacking.judge(ObjectKey("shop", name), None if value is None else POD, {}))
            lacks[name] = value or []
        else:
            rows.shown()
    wanted = sorted(
        f"{place} {name} {sorted(pod for pod, names in lacks.items() if name in names)}"
        for name, place in objects.items()
    )
    assert [row.shown.about for row in rows.shown()["items"]] == wanted
    assert rows.shown()["total"] == len(wanted)
