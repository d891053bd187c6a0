"""The README and the page about reviews show real output: the printed Pod is the one that the curl command gets."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonpatch
import orjson
import yaml

from tests.deadline import Deadline

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
REVIEW = (ROOT / "docs" / "a-review.md").read_text("utf-8")


def shown_pod() -> dict[str, Any]:
    block = re.findall(r"```yaml\n(.*?)```", REVIEW, re.DOTALL)[-1]
    pod: dict[str, Any] = yaml.safe_load(block)
    return pod


@contextmanager
def serving(folder: Path) -> Iterator[httpx.Client]:
    """Run ``make serve``'s command on a free port, with a client that trusts its certificate."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    samples = str(ROOT / "policies" / "samples")
    command = [sys.executable, "-m", "app.cli.main", "serve", "--policies", samples, "--port", port]
    process = subprocess.Popen([*command, "--certs", str(folder)], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline = Deadline(30)
        while not answers(port):
            assert process.poll() is None, f"serve ended with {process.returncode}"
            assert not deadline.passed(), "serve does not answer"
            time.sleep(0.05)
        trusted = ssl.create_default_context(cafile=str(folder / "ca-cert.pem"))
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusted, trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        process.wait(20)


def answers(port: str) -> bool:
    """Return whether a loopback port accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def test_the_curl_example_returns_the_pod_of_the_page(tmp_path: Path) -> None:
    (fixture,) = set(re.findall(r"--data-binary @(\S+)", REVIEW))
    (path,) = set(re.findall(r"https://localhost:9443(/mutate-\S+)", REVIEW))
    body = (ROOT / fixture).read_bytes()
    with serving(tmp_path) as client:
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"}).json()
    assert answer["response"]["allowed"] is True
    patch = orjson.loads(base64.b64decode(answer["response"]["patch"]))
    pod = jsonpatch.apply_patch(orjson.loads(body)["request"]["object"], patch)
    assert is_part(shown_pod(), pod)


def is_part(shown: Any, whole: Any) -> bool:
    """Return whether ``found`` contains everything that is shown, with lists of the same length."""
    if isinstance(shown, dict):
        return isinstance(whole, dict) and all(is_part(value, whole.get(key)) for key, value in shown.items())
    if isinstance(shown, list):
        return isinstance(whole, list) and len(shown) == len(whole) and all(map(is_part, shown, whole))
    return bool(shown == whole)


def test_the_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", README)) <= targets
    helped = subprocess.run(
        [sys.executable, "-m", "app.cli.main", "--help"], capture_output=True, text=True, check=True
    )
    for command in set(re.findall(r"(?:bin/|`)pykruise ([a-z]+)", README)):
        assert command in helped.stdout
