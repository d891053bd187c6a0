"""Parsing guides as scripts."""

from __future__ import annotations

from pathlib import Path

from tests.cli.guides import ELSEWHERE, TYPED, Typed, on_a_node, read, untyped

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
GUIDE = """\
# A guide
With a [sandbox](x.md):
```sh
pykruise sandbox --no-samples --feature-gates A=true
for name in a b; do kubectl create namespace $name; done
kubectl delete x y   # a sample
```
## One
Not `other.yaml`, but save this as `one.yaml`:
```yaml
kind: A
```
```console
$ kubectl apply \\
  -f one.yaml
a created
$ kubectl delete a
a deleted
Error from server: no
```
"""


def test_guide_files_commands_and_gates_are_found(tmp_path: Path) -> None:
    page = tmp_path / "guide.md"
    page.write_text(GUIDE, "utf-8")
    guide = read(page)
    assert guide.flags == "--no-samples --feature-gates A=true"
    assert guide.steps == (
        Typed("for name in a b; do kubectl create namespace $name; done", ""),
        Typed("kubectl delete x y", ""),
        ("one.yaml", "kind: A\n"),
        Typed("kubectl apply \\\n  -f one.yaml", "a created"),
        Typed("kubectl delete a", "a deleted\nError from server: no"),
    )
    assert [step.fails for step in guide.steps if isinstance(step, Typed)] == [False, False, False, True]


def test_every_shell_line_is_typed_by_a_test() -> None:
    assert {page.stem: lines for page in GUIDES.glob("*.md") if (lines := untyped(page))} == {}
    assert {page.stem for page in GUIDES.glob("*.md") if on_a_node(page)} == {"node-agent"}, "tests/daemon types them"


def test_each_guide_is_typed_or_has_a_reason() -> None:
    assert sorted((*TYPED, *ELSEWHERE)) == sorted(page.stem for page in GUIDES.glob("*.md"))


def test_commands_typed_in_other_tests_are_recognized() -> None:
    for guide, tests in ELSEWHERE.items():
        for test in tests:
            assert f"{guide}.md" in (GUIDES.parents[1] / test).read_text("utf-8")
