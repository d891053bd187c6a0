"""Pods that bypassed admission: recently created, selected by a set, and not injected by it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.api.names import NAMESPACE_NAME
from app.features.sidecarset.injection.selection import SidecarSetIndex
from app.features.sidecarset.plan.missed_pods import CLOCK_SKEW, bypassed_pods
from app.kube.objects import Pod
from app.kube.selectors import compile_selector
from tests.kit import objects

pytestmark = pytest.mark.behaviour("MGR-123")
AWAY = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAMESPACES = {name: {NAMESPACE_NAME: name} for name in ("shop", "kube-system")}
REVIEWED = compile_selector(
    {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system"]}]}
)


def index() -> SidecarSetIndex:
    found = SidecarSetIndex()
    for name, selector in (("logs", {"app": "web"}), ("metrics", {"app": "web", "tier": "front"})):
        container = {"name": name, "image": "a:1"}
        spec = {"selector": {"matchLabels": selector}, "containers": [container]}
        found.update({"metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec})
    return found


def pod(*, seconds: float = 1.0, phase: str = "Pending", **metadata: Any) -> Pod:
    """A Pod created this many seconds after the webhook was last seen."""
    created = (AWAY + timedelta(seconds=seconds)).isoformat()
    own = {"uid": "1", "creationTimestamp": created, "labels": {"app": "web"}}
    return objects.pod(phase=phase, **{**own, **metadata})


def sets_lacking(one: Pod, created: datetime = AWAY - timedelta(hours=1)) -> tuple[str, ...]:
    found = bypassed_pods([one], AWAY, index(), {"logs": created, "metrics": created}, NAMESPACES, REVIEWED)
    return found[0].sets if found else ()


def test_only_missing_sets_are_named() -> None:
    assert sets_lacking(pod()) == ("logs",)
    labels = {"app": "web", "tier": "front"}
    assert sets_lacking(pod(labels=labels)) == ("logs", "metrics")
    annotations = {"kruise.io/sidecarset-injected-list": "logs"}
    assert sets_lacking(pod(labels=labels, annotations=annotations)) == ("metrics",)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(pod(annotations={"kruise.io/sidecarset-injected-list": "logs"}), id="it was injected"),
        pytest.param(pod(labels={"app": "db"}), id="no set selects it"),
        pytest.param(pod(seconds=-CLOCK_SKEW.total_seconds() - 1), id="it is older"),
        pytest.param(pod(namespace="kube-system"), id="its namespace is not reviewed"),
        pytest.param(pod(namespace="gone"), id="its namespace is not known"),
        pytest.param(pod(phase="Succeeded"), id="it has finished"),
        pytest.param(pod(annotations={"kubernetes.io/config.mirror": "x"}), id="it is a mirror of a static Pod"),
    ],
)
def test_pods_that_lack_no_sidecar_are_not_reported(one: Pod) -> None:
    assert sets_lacking(one) == ()


def test_a_set_younger_than_the_pod_is_not_missing() -> None:
    assert sets_lacking(pod(), created=AWAY + timedelta(minutes=1)) == ()


def test_the_event_names_the_sets_and_a_remedy() -> None:
    (found,) = bypassed_pods([pod()], AWAY, index(), {"logs": AWAY}, NAMESPACES, REVIEWED)
    assert "SidecarSet logs" in found.message
    assert "delete the Pod" in found.message
