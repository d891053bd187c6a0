"""Some seeds of roll-outs under faults; more: ``python -m tests.features.sidecarset.rolling_seeds 1 500``."""

import pytest

from tests.features.sidecarset.rolling_seeds import run
from tests.kit import virtualtime


@pytest.mark.behaviour("SS-131", "SS-90", "SS-124")
@pytest.mark.parametrize("seed", [3, 7, 8, 12, 15, 26])
def test_no_limit_is_broken_and_all_comes_to_rest(seed: int) -> None:
    judge = virtualtime.run(run(seed))
    assert judge.breaches == []
    assert sum(judge.updates.values()) > 10
