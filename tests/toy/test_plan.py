"""The toy's plan, as a table."""

import pytest

from tests.toy.widget.plan import Plan, plan


@pytest.mark.parametrize(
    ("replicas", "pods", "expected"),
    [
        (0, [], Plan()),
        (2, [], Plan(create=("w-0", "w-1"))),
        (2, ["w-0", "w-1"], Plan()),
        (1, ["w-0", "w-1", "w-7"], Plan(delete=("w-1", "w-7"))),
        (2, ["w-1", "w-2"], Plan(create=("w-0",), delete=("w-2",))),
    ],
)
def test_pods_are_numbered_without_gaps(replicas: int, pods: list[str], expected: Plan) -> None:
    assert plan("w", replicas, pods) == expected
