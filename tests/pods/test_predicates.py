from __future__ import annotations

from typing import Any

import pytest

from app.kube.objects import ObjectMeta, Pod
from app.pods.predicates import is_specified_delete


@pytest.mark.parametrize(("labels", "marked"), [({}, False), ({"apps.kruise.io/specified-delete": "false"}, True)])
@pytest.mark.behaviour("PM-103")
def test_any_value_of_the_label_marks_a_pod_for_deletion(labels: Any, marked: bool) -> None:
    assert is_specified_delete(Pod(ObjectMeta("web-0", labels=labels))) is marked
