"""Deletion protection without a cluster: the object alone decides, and lookups are reported as unknown."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.features.deletionprotection.protected_kinds import FILE_NAME, SHIPPED
from app.framework.policies import PolicyError
from app.kube.admission import Allowed, Denied, Review
from app.kube.clock import SystemClock
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone
from tests.features.deletionprotection.reviews import FORBIDDEN, WIDGETS, deletion, protected

GATES = parse_gates("DeletionProtectionForCRDCascadingGate=true")


async def decide(review: Review, folder: Path | None = None) -> Any:
    standalone = Standalone(folder, GATES, SystemClock(), Random(1))
    await standalone.reload()
    assert standalone.problems == ()
    ((_, decision),) = (await standalone.decide(review))[0]
    return decision


@pytest.mark.parametrize(
    ("kind", "unknown"),
    [
        ("Namespace", "Namespace shop has active Pods or Bound volume claims"),
        ("CustomResourceDefinition", "there are objects of widgets.example.com"),
    ],
)
async def test_checks_that_need_a_cluster_pass_with_a_warning(kind: str, unknown: str) -> None:
    decision = await decide(deletion(kind, protected(kind, "Cascading", spec=WIDGETS)))
    assert decision == Allowed((f"without a cluster, it is unknown whether {unknown}",))


@pytest.mark.behaviour("DP-8")
async def test_the_table_file_is_used_and_is_not_an_object(tmp_path: Path) -> None:
    only_services = SHIPPED.read_text().partition("kinds:")[0] + (
        'kinds: [{kind: Service, group: "", resource: services, versions: [v1]}]'
    )
    (tmp_path / FILE_NAME).write_text(only_services)
    decision = await decide(deletion("Service", protected("Service")), tmp_path)
    assert decision == Denied(FORBIDDEN + "Always", 403, "Forbidden")
    standalone = Standalone(tmp_path, GATES, SystemClock(), Random(1))
    assert (await standalone.decide(deletion("Namespace", protected("Namespace"))))[0] == []


def test_an_invalid_table_prevents_startup(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("kinds: 3")
    with pytest.raises(PolicyError, match=FILE_NAME):
        Standalone(tmp_path, GATES, SystemClock(), Random(1))
