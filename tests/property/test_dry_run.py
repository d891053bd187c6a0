"""A real API server accepts what admission makes."""

from __future__ import annotations

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.property.dry_run import refusals, sample


@pytest.mark.controlplane
@pytest.mark.behaviour("PW-6", "PW-8")
async def test_the_api_server_accepts_injected_pods(control_plane: ControlPlane) -> None:
    found = sample(500, first=1)
    assert not found.wrong
    assert await refusals(str(control_plane.kubeconfig), found.pods) == {}
