"""A real API server accepts injected Pods."""

from __future__ import annotations

import asyncio
import logging

import pytest

from app.api.names import MIRROR_POD
from tests.cluster.controlplane import ControlPlane
from tests.property.dry_run import refusals, sample


@pytest.mark.controlplane
@pytest.mark.behaviour("PW-6", "PW-8")
def test_the_api_server_accepts_injected_pods(control_plane: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    found = sample(500, first=1)
    assert not found.wrong
    # An API server accepts mirror Pods only from kubelets.
    pods = {
        number: pod for number, pod in found.pods.items() if MIRROR_POD not in pod["metadata"].get("annotations", {})
    }
    assert asyncio.run(refusals(str(control_plane.kubeconfig), pods)) == {}
