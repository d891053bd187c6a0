"""Some seeds of Jobs with sidecars; more: ``python -m tests.features.sidecarterminator.terminator_seeds 1 100``."""

import pytest

from tests.features.sidecarterminator.terminator_seeds import run
from tests.kit import virtualtime


@pytest.mark.behaviour("SS-112", "SS-113", "SS-115")
@pytest.mark.parametrize("seed", [7, 9, 12])
def test_every_job_ends_as_its_containers_do(seed: int) -> None:
    judge = virtualtime.run(run(seed))
    assert judge.breaches == []
    assert judge.requests > 3
