"""What the manager may do, judged by the API server itself. All other scenarios run with these rights alone."""

from __future__ import annotations

import pytest

from tests.cluster.controlplane import ControlPlane

pytestmark = pytest.mark.controlplane

MANAGER = "--as=system:serviceaccount:kruise-system:kruise-manager"


@pytest.mark.behaviour("SS-109")
@pytest.mark.parametrize(
    "question",
    [
        pytest.param(("list", "secrets", "-n", "kube-system"), id="read Secrets of the system"),
        pytest.param(("get", "secrets", "-n", "default"), id="read Secrets of users"),
        pytest.param(("get", "secret/other", "-n", "kruise-system"), id="read other Secrets of its own namespace"),
        pytest.param(("patch", "nodes"), id="write Nodes"),
        pytest.param(("create", "clusterroles"), id="write roles"),
        pytest.param(("create", "pods", "-n", "default"), id="create Pods"),
        pytest.param(("create", "pods/exec", "-n", "default"), id="exec into Pods"),
        pytest.param(("delete", "sidecarsets"), id="delete what users wrote"),
        pytest.param(("*", "*"), id="everything"),
        pytest.param(("get", "*"), id="read everything"),
        pytest.param(("*", "sidecarsets"), id="everything with SidecarSets"),
    ],
)
def test_the_manager_may_not(control_plane_with_manager: ControlPlane, question: tuple[str, ...]) -> None:
    answer = control_plane_with_manager.kubectl("auth", "can-i", *question, MANAGER, check=False)
    assert answer.stdout.strip() == "no"


@pytest.mark.behaviour("SS-109")
@pytest.mark.parametrize(
    "question",
    [
        pytest.param(("watch", "pods", "-n", "default"), id="watch Pods"),
        pytest.param(("patch", "sidecarsets", "--subresource=status"), id="write status"),
        pytest.param(("create", "controllerrevisions.apps", "-n", "kruise-system"), id="record revisions"),
        pytest.param(("create", "events", "-n", "default"), id="write events"),
    ],
)
def test_the_manager_may(control_plane_with_manager: ControlPlane, question: tuple[str, ...]) -> None:
    answer = control_plane_with_manager.kubectl("auth", "can-i", *question, MANAGER, check=False)
    assert answer.stdout.strip() == "yes"
