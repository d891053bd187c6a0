"""Every command of a page is run by a test and can be typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.main import app
from app.cli.verbs import Later, instead
from tests.cli.guides import TYPED
from tests.cli.pages import BLOCK, ROOT, line, lines
from tests.test_documents import pages

PAGES = [name for name in pages() if name.startswith(("README", "CONTRIBUTING", "docs/"))]
#: Prefixes of commands that no test runs, and why.
NOT_TYPED = {
    "make test": "the tests would run themselves",
    "make simulate": "a level of its own in .ci/run",
    "make mutants": "a level of its own in .ci/run",
    "python -m tests.simulation": "the same, for longer: make simulate is a level of .ci/run",
    "docker build": "the Dockerfile is built without Docker (tests/cluster/ourimage.py)",
    "docker push": "to a registry of the reader's own",
    "kubectl -n argocd patch": "Argo CD itself cannot be built here; tests/peers evaluates the checks of the file",
    "make cluster": "a machine has room for one cluster: tests/cluster/test_cluster.py starts and ends it",
    ".venv/bin/python -m tests.cluster": "the same",
    "export KUBECONFIG=…": "the same",
    "~/.cache/pykruise": "the helm of tests/deploy",
}
PROGRAMS = ("$ ", "make ", "kubectl ", "pykruise ", "helm ", "curl ", "docker ", "python ", ".venv/bin/")
#: The name of the command in the tutorial about adding one.
MADE_UP = "pykruise paint"
#: Placeholders in explained commands.
_INLINE = re.compile(r"(?<!`)`((?:pykruise|kubectl kruise|\.venv/bin/pykruise|make|python -m) [^`]+)`")


@cache
def claimed() -> frozenset[str]:
    """Return the commands that tests take from pages."""
    found: set[str] = set()
    for file in sorted((ROOT / "tests").rglob("*.py")):
        text = file.read_text("utf-8")
        if "tests.cli.pages" not in text or file == Path(__file__):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                given = [one.value for one in node.args if isinstance(one, ast.Constant)]
                if node.func.id == "lines":
                    found |= {f"{given[0]}: {one}" for one in lines(str(given[0]))}
                elif node.func.id in ("line", "shown"):
                    page, beginning = map(str, given)
                    found.add(f"{page}: {line(page, beginning)}")
    return frozenset(found)


def test_a_test_types_each_command_of_a_page() -> None:
    others = [page for page in PAGES if page not in {f"docs/guides/{name}.md" for name in TYPED}]
    shown = [f"{page}: {one}" for page in others for one in lines(page) if not one.startswith(tuple(NOT_TYPED))]
    assert [one for one in shown if one not in claimed()] == []


def test_command_blocks_are_labeled() -> None:
    blocks = [(page, block) for page in PAGES for block in BLOCK.finditer((ROOT / page).read_text("utf-8"))]
    others = [(page, block[2]) for page, block in blocks if block[1] not in ("sh", "console")]
    assert [(page, one) for page, text in others for one in text.splitlines() if one.startswith(PROGRAMS)] == []


def test_untyped_blocks_exist_and_have_a_reason() -> None:
    there = [one for page in PAGES for one in lines(page)]
    assert [one for one in NOT_TYPED if not any(command.startswith(one) for command in there)] == []


def _named(page: str) -> Iterator[str]:
    text = (ROOT / page).read_text("utf-8")
    yield from (one for one in lines(page) if one.startswith(("pykruise ", "kubectl kruise", ".venv/bin/pykruise")))
    yield from (" ".join(found.split()) for found in _INLINE.findall(BLOCK.sub("", text)))


def test_commands_on_pages_are_valid() -> None:
    assert [f"{page}: {wrong}" for page in PAGES for command in _named(page) if (wrong := problem(command))] == []


@pytest.mark.parametrize(
    "command",
    [
        "pykruise nonsense",
        "pykruise rollout statu",
        "pykruise plan --nonsense",
        "make nonsense",
        "python -m tests.none",
    ],
)
def test_invalid_commands_are_found(command: str) -> None:
    assert problem(command)


def problem(command: str) -> str:
    words: Any = command.replace("kubectl kruise", "pykruise")
    words = re.split(r"\\?\|", words)[0].split()
    if words[0] == "make":
        return "" if words[1] in targets() else f"{command}: no such target"
    if words[0] == "python":
        return "" if find_spec(words[2]) else f"{command}: no such module"
    if command.startswith(MADE_UP):
        return ""
    found: Any = command_line()
    context = typer.Context(found)
    for number, word in enumerate(words[1:], 1):
        if not hasattr(found, "list_commands"):
            break
        if instead(word) and len(words) == number + 1:
            return ""
        if word in ("-h", "--help", "--version", "…", "VERB"):
            return ""
        inner = found.get_command(context, word)
        if inner is None:
            return f"{command}: no such command"
        found = inner.made() if isinstance(inner, Later) else inner
    known = {option for one in found.params for option in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
    unknown = [word for word in words if word.startswith("-") and word.split("=")[0].rstrip(",.") not in {*known, "-"}]
    return f"{command}: {found.name} has no {', '.join(unknown)}" if unknown and found.name not in UNTOUCHED else ""


#: Their flags are in Go's syntax.
UNTOUCHED = ("manager", "daemon")


@cache
def command_line() -> Any:
    return typer.main.get_command(app)


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
