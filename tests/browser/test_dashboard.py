"""``pykruise dashboard`` of a sandbox in a browser: it follows a rollout, also on small screens and by keyboard."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PICTURES
from tests.cluster import binaries

pytestmark = [pytest.mark.browser, pytest.mark.behaviour("CLI-60")]
ROOT = Path(__file__).resolve().parent.parent.parent
PYKRUISE = (sys.executable, "-m", "app.cli.entry")
EXAMPLES = ROOT / "app" / "features"


@contextmanager
def command(*arguments: str, says: str) -> Iterator[str]:
    """Inside the context, run a command; yield the line with which it reports that it is ready."""
    process = subprocess.Popen([*PYKRUISE, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield next(line for line in process.stdout if says in line)
    finally:
        process.terminate()
        process.communicate(timeout=120)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("sandbox") / "kubeconfig"
    with command("sandbox", "--quiet", "--no-samples", "--kubeconfig", str(path), says="Ready"):
        yield path


@pytest.fixture(scope="module")
def dashboard(kubeconfig: Path) -> Iterator[str]:
    with command("dashboard", "--port", "0", "--kubeconfig", str(kubeconfig), says="http://") as line:
        yield line.split()[0]


def kubectl(kubeconfig: Path, *arguments: str) -> None:
    program = binaries.ensure(binaries.KUBECTL)[binaries.KUBECTL]
    subprocess.run([program, "--kubeconfig", kubeconfig, *arguments], check=True, cwd=ROOT, timeout=120)


def create(kubeconfig: Path, kind: str) -> None:
    kubectl(kubeconfig, "create", "--namespace=default", "-f", str(EXAMPLES / kind / f"{kind}.example.yaml"))


def test_the_page_follows_a_rollout(page: Page, kubeconfig: Path, dashboard: str) -> None:
    page.goto(dashboard)
    expect(page.get_by_role("status")).to_have_text("live")
    for kind in ("sidecarset", "cloneset", "podunavailablebudget"):
        create(kubeconfig, kind)
    web = page.locator("#workloads li", has_text="CloneSet in default")
    expect(web).to_contain_text("3 of 3 Pods updated, 3 available")
    expect(page.locator("#sidecarSets li")).to_contain_text("no Pod lacks its containers")
    expect(page.locator("#budgets li")).to_contain_text("disruptions allowed: 1")
    before = web.locator(".soft").inner_text()
    # tests/dashboard checks the delay in virtual time. Here the page only has to update by itself.
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:1.26"}]}}}}
    kubectl(kubeconfig, "patch", "cloneset", "web", "--type=merge", "-p", json.dumps(image))
    expect(web.locator(".soft")).not_to_have_text(before)
    expect(web).to_contain_text(re.compile(r"done 3 of 3 Pods updated, 3 available"))
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / "dashboard.png", full_page=True)


def test_the_page_works_on_small_screens_and_with_a_keyboard(page: Page, kubeconfig: Path, dashboard: str) -> None:
    create(kubeconfig, "daemonset")
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(dashboard)
    expect(page.locator("#workloads li", has_text="DaemonSet in default")).to_contain_text("3 of 3 nodes")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.keyboard.press("Tab")
    page.keyboard.type("agent")
    expect(page.locator("#workloads li")).to_have_count(1)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.key") == "DaemonSet/default/agent"
    expect(page.locator("#spreads")).to_have_attribute("data-none", "none")
    page.screenshot(path=PICTURES / "dashboard-360.png")


def test_tenant_controlled_names_are_rendered_as_text(page: Page, dashboard: str) -> None:
    hostile = '<img src=x onerror="document.title=1">'
    shown = {"about": hostile, "tone": "", "message": hostile, "detail": hostile}
    spread = {"name": hostile, "namespace": hostile, "shown": shown}
    event = "event: spreads\ndata: " + json.dumps({"total": 1, "more": 0, "items": [spread]}) + "\n\n"
    page.route("**/api/events", lambda route: route.fulfill(content_type="text/event-stream", body=event))
    page.goto(dashboard)
    expect(page.locator("#spreads li")).to_contain_text(hostile)
    assert page.locator("#spreads img").count() == 0
    assert page.title() == "pykruise"


def crowded() -> dict[str, dict[str, object]]:
    """Return the rows of 10,000 Pods: 500 workloads and 500 nodes with 20 Pods each."""
    rows = [
        {
            "kind": "CloneSet",
            "namespace": "shop",
            "name": f"web-{number}",
            "state": "under way",
            "part": 0.5,
            "message": "10 of 20 Pods updated, 9 available",
            "revisions": [
                {"name": "a", "pods": 10, "ready": 10, "target": False},
                {"name": "b", "pods": 10, "ready": 9, "target": True},
            ],
        }
        for number in range(500)
    ]
    pods = dict.fromkeys(("notReady", "pending", "terminating", "failed", "finished"), 0)
    nodes = [{"name": f"node-{number}", "pods": {"ready": 20, **pods}} for number in range(500)]
    return {
        "workloads": {"total": 500, "more": 0, "items": rows},
        "nodes": {"total": 500, "more": 0, "pods": 10_000, "items": nodes},
    }


#: Records which rows are redrawn from now on, and whether a whole list is redrawn.
_WATCH = """() => {
  window.drawn = [];
  const original = Element.prototype.replaceChildren;
  Element.prototype.replaceChildren = function (...given) {
    window.drawn.push(this.tagName === "LI" ? this.dataset.key : this.tagName);
    return original.apply(this, given);
  };
}"""
_TELL = "([section, data]) => source.dispatchEvent(new MessageEvent(section, {data: JSON.stringify(data)}))"


def test_only_changed_rows_of_ten_thousand_pods_are_redrawn(page: Page, dashboard: str) -> None:
    told = crowded()
    page.route("**/api/events", lambda route: route.fulfill(content_type="text/event-stream", body=": nothing\n\n"))
    page.goto(dashboard)
    for section, data in told.items():
        page.evaluate(_TELL, [section, data])
    expect(page.locator("#workloads li")).to_have_count(500)
    expect(page.locator("#nodes li")).to_have_count(500)
    expect(page.locator("#t-nodes small")).to_have_text("500 nodes, 10000 Pods")
    page.evaluate(_WATCH)
    rows = told["workloads"]["items"]
    assert isinstance(rows, list)
    rows[250]["message"] = "11 of 20 Pods updated, 9 available"
    page.evaluate(_TELL, ["workloads", told["workloads"]])
    expect(page.locator("#workloads li").nth(250)).to_contain_text("11 of 20 Pods updated")
    assert page.evaluate("window.drawn") == ["CloneSet/shop/web-250"]
    page.evaluate(_TELL, ["nodes", told["nodes"]])
    page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert page.evaluate("window.drawn") == ["CloneSet/shop/web-250"]
