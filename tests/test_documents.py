"""Every link of the documentation leads to a file that is there and to a heading in it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")


def pages() -> list[str]:
    """The pages of the repository; without git, those that lie below its folders."""
    try:
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
        return sorted(path.relative_to(ROOT).as_posix() for path in found)
    return listed.stdout.split()


def headings(text: str) -> set[str]:
    """The anchors of a page, as GitHub names them."""
    found: dict[str, int] = {}
    anchors = set()
    for title in re.findall(r"^#+\s+(.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        seen = found.get(anchor, 0)
        found[anchor] = seen + 1
        anchors.add(f"{anchor}-{seen}" if seen else anchor)
    return anchors


def broken(text: str, page: Path, root: Path = ROOT) -> Iterator[str]:
    """The links of a page that lead nowhere."""
    for target in _LINK.findall(_CODE.sub("", text)):
        if _SCHEME.match(target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or not file.is_relative_to(root):
            yield f"{target}: not there"
        elif anchor and file.suffix == ".md" and anchor not in headings(file.read_text("utf-8")):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("name", pages())
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    assert list(broken(page.read_text("utf-8"), page)) == []


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words\n[a](#two-words) [b](#three) [c](none.md) [d](page.md#two-words) [e](https://x.example)"
    )
    assert list(broken(page.read_text(), page, tmp_path)) == ["#three: no such heading", "none.md: not there"]
