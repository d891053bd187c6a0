"""The checker of rules, marks and citations finds errors."""

from pathlib import Path

import pytest

from tests.behaviours import ROOT, Behaviour, behaviours, cited, mistakes

RULE, WAITS = Behaviour("SS-1", "A rule.", ""), Behaviour("SS-2", "Another.", "somebody")
REASON = Behaviour("D-1", "Why.", "", reason=True)


def test_a_consistent_set_is_accepted() -> None:
    assert mistakes({"a": [RULE, WAITS, REASON]}, {"SS-1": {"t.py::t"}}, {"SS-2": {"x.py"}, "D-1": {"x.py"}}) == []


@pytest.mark.parametrize(
    ("pages", "tests", "citations", "said"),
    [
        ({"a": [RULE], "b": [RULE]}, {"SS-1": {"t"}}, {}, "rule SS-1 is defined twice: in a and in b"),
        ({"a": [RULE]}, {}, {}, "rule SS-1 has no test"),
        ({"a": [WAITS]}, {"SS-2": {"t"}}, {}, "rule SS-2 waits for somebody, but is marked as proven by t"),
        ({"a": []}, {"SS-9": {"t"}}, {}, "unknown rule SS-9: marked by t"),
        ({"a": []}, {}, {"SS-9": {"x.py"}}, "unknown rule SS-9: cited in x.py"),
    ],
)
def test_inconsistencies_are_reported(
    pages: dict[str, list[Behaviour]], tests: dict[str, set[str]], citations: dict[str, set[str]], said: str
) -> None:
    [found] = mistakes(pages, tests, citations)
    assert found.startswith(said)


def test_pages_and_code_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n- `SS-1` A rule.\n- `SS-2` *(waits: somebody)* Another.\n- `D-1` *(reason)* Why.\n", "utf-8")
    assert list(behaviours(page)) == [RULE, WAITS, REASON]
    code = tmp_path / "app" / "deep"
    code.mkdir(parents=True)
    (code / "x.py").write_text('"""SS-1 … SS-3, not UTF-8."""  # D-1\n', "utf-8")
    assert cited(tmp_path / "app", {"SS", "D"}) == {id_: {"app/deep/x.py"} for id_ in ("SS-1", "SS-3", "D-1")}
    assert "SS-1" in cited(ROOT / "app", {"SS"})
