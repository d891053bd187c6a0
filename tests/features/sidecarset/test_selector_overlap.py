from typing import Any

import pytest
from hypothesis import given

from app.features.sidecarset.conflicts import overlap
from app.kube.selectors import compile_selector
from tests.kube.test_selectors import label_maps, selectors


def labels(**pairs: str) -> dict[str, Any]:
    return {"matchLabels": pairs}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.behaviour("SS-32")
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (labels(a="b"), labels(a="b"), True),
        (labels(a="b"), labels(a="c"), False),
        (labels(a="b"), labels(c="d"), True),
        (labels(a="b"), labels(a="b", c="d"), True),
        (labels(a="b"), expression("a", "In", "b", "c"), True),
        (labels(a="b"), expression("a", "In", "c"), False),
        (labels(a="b"), expression("a", "NotIn", "b"), False),
        (labels(a="b"), expression("a", "NotIn", "c"), True),
        (expression("a", "In", "b", "c"), expression("a", "NotIn", "b"), True),
        (expression("a", "In", "b", "c"), expression("a", "NotIn", "b", "c"), False),
        (labels(a="b"), expression("a", "Exists"), True),
        (labels(a="b"), expression("a", "DoesNotExist"), False),
        (expression("a", "Exists"), expression("a", "In", "b"), True),
        # OpenKruise's quirk is kept: strictly, labels a=b,c=d would match both, and so would a=c below.
        (labels(a="b"), expression("c", "Exists"), False),
        (expression("a", "Exists"), expression("a", "NotIn", "b"), False),
        (labels(a="b"), expression("c", "DoesNotExist"), True),
    ],
)
def test_selectors_overlap_unless_one_key_separates_them(
    first: dict[str, Any], second: dict[str, Any], expected: bool
) -> None:
    assert overlap(first, second) is expected
    assert overlap(second, first) is expected


@pytest.mark.behaviour("SS-32")
@given(selectors, selectors, label_maps)
def test_disjoint_selectors_share_no_object_except_for_the_exists_quirk(
    first: dict[str, Any], second: dict[str, Any], object_labels: dict[str, str]
) -> None:
    both = [*first["matchExpressions"], *second["matchExpressions"]]
    # Excluded: a second In on one key (a union here, an intersection when matching), and Exists, which is the quirk.
    keys = [e["key"] for e in both if e["operator"] == "In"] + [*first["matchLabels"], *second["matchLabels"]]
    if any(e["operator"] == "Exists" for e in both) or len(set(keys)) != len(keys):
        return
    if not overlap(first, second):
        assert not (compile_selector(first).matches(object_labels) and compile_selector(second).matches(object_labels))
