"""``pykruise serve`` in a browser: /docs lists the webhooks, and a review can be sent from there."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PICTURES
from tests.scenarios.world import eventually

pytestmark = [pytest.mark.browser, pytest.mark.behaviour("MGR-148")]
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a service with the sample policies."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    certificates = tmp_path_factory.mktemp("certificates")
    command = [sys.executable, "-m", "app.cli.entry", "serve", "--policies", str(ROOT / "policies")]
    options = ["--host", "127.0.0.1", "--port", str(port), "--certs", str(certificates)]
    process = subprocess.Popen([*command, *options], cwd=ROOT)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        eventually(answers, "the service answers", 30)
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def test_the_page_sends_a_review(page: Page, served: str) -> None:
    foreign: list[str] = []
    here = (served, "data:")
    page.on("request", lambda request: None if request.url.startswith(here) else foreign.append(request.url))
    page.goto(f"{served}/docs")
    webhook = page.locator("#operations-mutating-mutate-pod")
    webhook.locator("button.opblock-summary-control").click()
    expect(webhook).to_contain_text("SS-44")
    webhook.get_by_role("button", name="Try it out").click()
    webhook.get_by_role("button", name="Execute").click()
    answer = webhook.locator(".live-responses-table")
    expect(answer).to_contain_text('"allowed": true')
    expect(answer).to_contain_text("JSONPatch")
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / "docs.png")
    assert foreign == []
