"""The commands of the guides, run with a real kubectl, print what the guides show.

Generated names (of Pods) are taken from the cluster. Output is compared where it does not depend on timing: the end of
a rollout, the confirmation of a change, and the reason for a refusal.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.guides import TYPED, Typed, read
from tests.cli.reader import ROOT, sandboxed

_POD = re.compile(r"\b[a-z][a-z0-9]*(?:-[a-z0-9]+)*-[a-z0-9]{5}\b")
_STABLE = re.compile(
    r"kubectl (apply|create|patch|label|delete -f|taint|annotate|scale|wait(?!.*--for=delete)|get .* -o jsonpath)"
    r"|(pykruise|kubectl kruise) rollout"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]{8}Z")

pytestmark = pytest.mark.controlplane


@pytest.mark.parametrize("name", TYPED)
def test_a_guide_can_be_followed(name: str, tmp_path: Path) -> None:
    guide = read(ROOT / "docs" / "guides" / f"{name}.md")
    assert sum(isinstance(step, Typed) for step in guide.steps) > 3
    with sandboxed(tmp_path, guide.flags) as reader:
        for step in guide.steps:
            if not isinstance(step, Typed):
                (tmp_path / step[0]).write_text(step[1], "utf-8")
                continue
            done = reader.types(reader.as_here(step.command))
            told = f"$ {step.command}\n{done.stdout}\nprinted in the guide:\n{step.printed}"
            assert (done.returncode != 0) is step.fails, told
            if step.fails or (step.printed and _STABLE.match(step.command)):
                # The last line; newer versions of kubectl print more.
                assert _plain(step.printed.splitlines()[-1]) in _plain(done.stdout), told


def _plain(text: str) -> str:
    """Return the parts of a text that depend neither on Pod names nor on time."""
    return " ".join(_TIME.sub("TIME", _POD.sub("POD", text)).split())
