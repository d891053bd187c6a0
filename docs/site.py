"""MkDocs hooks: build the site from the pages in place, so that links work as they do in the repository.

Each release has its own folder below build/site, and every page has a version selector.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parent.parent
SITE: Final = ROOT / "build" / "site"
_INDEX: Final = "docs/README.md"
_LINK: Final = re.compile(r"\]\(([^)#\s:]+)")


def linked(page: str) -> Iterator[str]:
    """Yield the repository paths of the files that a page links to."""
    for target in _LINK.findall((ROOT / page).read_text("utf-8")):
        file = (ROOT / page).parent.joinpath(target).resolve()
        if file.is_relative_to(ROOT) and file.is_file():
            yield file.relative_to(ROOT).as_posix()


def sources() -> set[str]:
    """Return the pages reachable from the README, and the pictures and other files that they link to."""
    found, front = set[str](), {"README.md"}
    while front:
        found |= front
        front = {target for page in front if page.endswith(".md") for target in linked(page)} - found
    return found


def navigation() -> list[dict[str, Any]]:
    """Return the sections of the index with the pages that each links to."""
    sections: list[dict[str, Any]] = [{"pykruise": ["README.md", _INDEX]}]
    for section in (ROOT / _INDEX).read_text("utf-8").split("\n## ")[1:]:
        targets = (Path(_INDEX).parent / target for target in _LINK.findall(section))
        pages = dict.fromkeys((ROOT / target).resolve().relative_to(ROOT).as_posix() for target in targets)
        sections.append({section.partition("\n")[0]: list(pages)})
    return sections


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the folder of this version and the navigation."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    config.site_dir = str(SITE / version)
    config.nav = navigation()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the pages from the repository instead of from one folder; keep the theme's files."""
    theme = [file for file in files if not (file.abs_src_path or "").startswith(config.docs_dir)]
    ours = [File.generated(config, name, abs_src_path=str(ROOT / name)) for name in sorted(sources())]
    return Files([*theme, *ours])


def on_post_build(**_: Any) -> None:
    """List the versions, newest first, for the selector of each page; open the newest by default."""
    folders = (path.name for path in SITE.iterdir() if (path / "index.html").exists())
    versions = sorted(folders, key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in versions]
    (SITE / "versions.json").write_text(json.dumps(listed), "utf-8")
    (SITE / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={versions[0]}/">\n', "utf-8")
