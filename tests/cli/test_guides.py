"""How guides are read as scripts."""

from __future__ import annotations

from pathlib import Path

from tests.cli.guides import Typed, read

GUIDE = """\
# A guide
With a [sandbox](x.md):
```sh
pykruise sandbox --feature-gates A=true
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
Error from server: no
```
"""


def test_files_commands_and_gates_are_found(tmp_path: Path) -> None:
    page = tmp_path / "guide.md"
    page.write_text(GUIDE, "utf-8")
    guide = read(page)
    assert guide.gates == "A=true"
    assert guide.steps == (
        Typed("kubectl delete x y", ""),
        ("one.yaml", "kind: A\n"),
        Typed("kubectl apply \\\n  -f one.yaml", "a created"),
        Typed("kubectl delete a", "Error from server: no"),
    )
    assert [step.fails for step in guide.steps if isinstance(step, Typed)] == [False, False, True]
