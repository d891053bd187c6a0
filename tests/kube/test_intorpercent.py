from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.quantities import IntOrPercentError, is_percent, percentage, scaled
from tests.kube.recorded import cases, for_each


@for_each(cases("percents"))
def test_counts_and_percentages_scale_as_in_kubernetes(asked: dict[str, Any], expected: int | None) -> None:
    if expected is None:
        with pytest.raises(IntOrPercentError):
            scaled(asked["value"], asked["total"], asked["roundUp"])
    else:
        assert scaled(asked["value"], asked["total"], asked["roundUp"]) == expected


@given(st.integers(0, 300), st.integers(0, 10**6))
def test_rounding_up_and_down_differ_by_at_most_one(percent: int, total: int) -> None:
    up, down = scaled(f"{percent}%", total, True), scaled(f"{percent}%", total, False)
    assert 0 <= up - down <= 1
    assert down * 100 <= percent * total <= up * 100


@pytest.mark.parametrize("value", [None, True, "5", "", "1.5%", "%", "٣%", "9" * 30 + "%"])
def test_other_values_are_refused(value: Any) -> None:
    assert not is_percent(value)
    with pytest.raises(IntOrPercentError):
        scaled(value, 10, True)


def test_percentages_are_recognized() -> None:
    assert is_percent("25%")
    assert not is_percent(25)
    assert percentage("120%") == 120
