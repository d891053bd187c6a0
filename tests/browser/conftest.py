"""A real browser. A test fails if a script of its page fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.kit.debian import program

#: The folder for screenshots, for inspection by people.
PICTURES = Path(__file__).resolve().parent.parent.parent / "build" / "pictures"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = program("chromium")
    assert found is not None, "no Chromium: make test-browser installs it"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Yield an empty page that accepts our self-signed certificates."""
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    failures: list[str] = []
    opened.on("pageerror", lambda error: failures.append(str(error)))
    yield opened
    context.close()
    assert failures == []
