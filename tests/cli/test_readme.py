"""The page about reviews shows real output: the printed Pod is the one that the curl command gets."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from random import Random
from typing import Any

import jsonpatch
import orjson
import yaml

from app.manager.gates import parse_gates
from app.manager.standalone import Standalone
from tests.fuzz.service import Service
from tests.kit.virtualtime import VirtualClock

ROOT = Path(__file__).resolve().parents[2]
REVIEW = (ROOT / "docs" / "a-review.md").read_text("utf-8")


async def test_the_curl_example_returns_the_pod_of_the_page() -> None:
    (fixture,) = set(re.findall(r"--data-binary @(\S+)", REVIEW))
    (path,) = set(re.findall(r"https://localhost:9443(/mutate-\S+)", REVIEW))
    document = orjson.loads((ROOT / fixture).read_bytes())
    standalone = Standalone(ROOT / "policies" / "samples", parse_gates(""), VirtualClock(), Random(1))
    await standalone.reload()
    response = await Service(standalone).respond(path, document)
    assert response["allowed"] is True
    patch = orjson.loads(base64.b64decode(response["patch"]))
    shown = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", REVIEW, re.DOTALL)[-1])
    assert is_part(shown, jsonpatch.apply_patch(document["request"]["object"], patch))


def is_part(shown: Any, whole: Any) -> bool:
    """Return whether ``whole`` contains everything that is shown, with lists of the same length."""
    if isinstance(shown, dict):
        return isinstance(whole, dict) and all(is_part(value, whole.get(key)) for key, value in shown.items())
    if isinstance(shown, list):
        return isinstance(whole, list) and len(shown) == len(whole) and all(map(is_part, shown, whole))
    return bool(shown == whole)
