"""The sandbox's schemas, discovery and columns are those of the real server."""

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.conformance.record import differences, recorded


@pytest.mark.controlplane
def test_data_matches_the_server() -> None:
    with ControlPlane(controller_manager=False) as control_plane:
        files = recorded(lambda path, accept: control_plane.request("GET", path, accept=accept)[1])
    assert differences(files) == []
