"""No controller is stopped by an object of any shape in its caches."""

import logging
from random import Random

import pytest

from app.kube import virtualtime
from app.slices import ControllerPart
from tests.fuzz.controllers import Trial, parts

PARTS = list(parts())


@pytest.mark.behaviour("MGR-45")
@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_hostile_objects_in_a_cache_raise_in_no_mapper(part: ControllerPart, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)

    async def tried() -> Trial:
        trial = Trial(part, Random(f"1:{part.name}"))
        await trial.run(15)
        return trial

    trial = virtualtime.run(tried())
    assert [problem for problem in trial.problems if "a mapper raised" in problem] == []
