"""Every link of the documentation leads to an existing file and heading."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from app.api import names
from tests.behaviours import behaviours

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")


def pages() -> list[str]:
    """Return the pages of the repository; without git, those below its folders."""
    try:
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
        return sorted(path.relative_to(ROOT).as_posix() for path in found)
    return listed.stdout.split()


@cache
def headings(text: str) -> set[str]:
    """Return the anchors of a page, as GitHub names them."""
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
    """Return the broken links of a page."""
    for target in _LINK.findall(_CODE.sub("", text)):
        if _SCHEME.match(target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or not file.is_relative_to(root):
            yield f"{target}: not there"
        elif anchor and file.suffix == ".md" and anchor not in headings(file.read_text("utf-8")):
            yield f"{target}: no such heading"


def test_links_resolve() -> None:
    read = [(ROOT / name, (ROOT / name).read_text("utf-8")) for name in pages()]
    assert [f"{page}: {link}" for page, text in read for link in broken(text, page)] == []


def test_imports_of_examples_resolve() -> None:
    for page in ("docs/adding-a-kind.md", "docs/adding-a-handler.md"):
        lines = re.findall(r"^from (app[\w.]*) import ([\w, ]+)", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        for module, imported in lines:
            if not module.startswith("app.features.widget"):
                for name in imported.split(","):
                    assert hasattr(importlib.import_module(module), name.strip()), f"{page}: {module}.{name.strip()}"


def test_the_index_names_every_page() -> None:
    """Pages of rules and of kinds have their own index."""
    index = {name for name in linked(ROOT / "docs/README.md") if name.startswith("docs/")}
    elsewhere = ("docs/behaviours/", "docs/reference/kinds/")
    own = {name for name in pages() if name.startswith("docs/") and not name.startswith(elsewhere)}
    assert own - index - {"docs/README.md"} == set()
    assert "docs/README.md" in linked(ROOT / "README.md")


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words\n[a](#two-words) [b](#three) [c](none.md) [d](page.md#two-words) [e](https://x.example)"
    )
    assert list(broken(page.read_text(), page, tmp_path)) == ["#three: no such heading", "none.md: not there"]


def test_pages_are_spelled_correctly() -> None:
    files = [*pages(), "app"]
    command = [str(Path(sys.executable).with_name("codespell")), "--toml", "pyproject.toml", *files]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout.splitlines() == []


def test_misspellings_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Recieve it.\n", "utf-8")  # codespell:ignore
    command = [str(Path(sys.executable).with_name("codespell")), str(page)]
    assert "Recieve ==> Receive" in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def linked(page: Path) -> set[str]:
    found = set()
    for target in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        path = target.partition("#")[0]
        file = (page.parent / path).resolve()
        if path.endswith(".md") and not _SCHEME.match(target) and file.is_relative_to(ROOT):
            found.add(file.relative_to(ROOT).as_posix())
    return found


def test_every_label_and_annotation_documents_the_effect_of_forgery() -> None:
    """Users can write them: see docs/security.md, "What tenants can write"."""
    section = (ROOT / "docs/security.md").read_text("utf-8").partition("## What tenants can write")[2]
    section = section.partition("\n## ")[0]
    known = [value for name, value in vars(names).items() if name.isupper() and isinstance(value, str) and "/" in value]
    assert [value for value in known if f"`{value}`" not in section] == []


def test_every_difference_cites_rules_that_exist() -> None:
    rules = {rule.id for page in (ROOT / "docs/behaviours").glob("*.md") for rule in behaviours(page)}
    text = (ROOT / "docs/reference/differences.md").read_text("utf-8")
    cited = [one.split(", ") for one in re.findall(r" \[([A-Z][^\]]+)\]$", text, re.MULTILINE)]
    assert len(cited) > 100
    assert {rule for ids in cited for rule in ids} - rules == set()
