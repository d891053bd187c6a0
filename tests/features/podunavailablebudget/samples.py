"""Pods and budgets as the plan tests write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from app.features.podunavailablebudget.plan.pods import PodFacts
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.kube.clock import rfc3339
from app.kube.objects import Pod, decode_pod
from tests.kit import objects

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NGINX = "docker.io/library/nginx@sha256:" + "a" * 64


def ago(seconds: float) -> str:
    """A time of a status map."""
    return rfc3339(NOW - timedelta(seconds=seconds))


def raw_pod(
    name: str = "web-0",
    *,
    ready: bool = True,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    budget: str = "shop",
    image: str = "nginx:1",
    running: str = "nginx:1",
    image_id: str = NGINX,
    phase: str = "Running",
    deleting: bool = False,
    resources: Json | None = None,
    made: str | None = None,
    owners: Sequence[Json] = (),
) -> Json:
    related = {"pub.kruise.io/related-pub": budget, "kruise.io/related-pub": budget} if budget else {}
    container: Json = {"name": "main", "image": image, **({} if resources is None else {"resources": resources})}
    return objects.pod_json(
        name,
        namespace="web",
        generation=1,
        labels={"app": "web", **(labels or {})},
        annotations={**related, **(annotations or {})},
        creationTimestamp=made,
        deletionTimestamp="2026-01-01T11:59:59Z" if deleting else None,
        ownerReferences=list(owners),
        phase=phase,
        conditions=[{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T11:00:00Z"}],
        spec={"containers": [container]},
        status={"containerStatuses": [{"name": "main", "image": running, "imageID": image_id, "ready": ready}]},
    )


def pod(name: str = "web-0", **given: Any) -> Pod:
    """Return the object as controllers decode it."""
    return decode_pod(orjson.dumps(raw_pod(name, **given)))


def facts(
    name: str, *, healthy: bool = True, active: bool = True, uid: str = "", generation: int = 1, since: float = 3600
) -> PodFacts:
    """A Pod as a budget sees it; ``since``: seconds for which it is ready."""
    ready_since = NOW - timedelta(seconds=since) if healthy else None
    return PodFacts(name, uid or f"uid-{name}", active, healthy, ready_since, (generation, ("nginx:1",)))


def budget(
    *,
    allowed: int = 1,
    desired: int = 9,
    current: int = 10,
    total: int = 10,
    disrupted: Mapping[str, str] | None = None,
    unavailable: Mapping[str, str] | None = None,
    generation: int = 1,
    observed: int | None = 1,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> PodUnavailableBudget:
    """A budget with these numbers; ``observed=None``: without any status."""
    status: Json = {
        "observedGeneration": observed,
        "unavailableAllowed": allowed,
        "desiredAvailable": desired,
        "currentAvailable": current,
        "totalReplicas": total,
    }
    if disrupted:
        status["disruptedPods"] = dict(disrupted)
    if unavailable:
        status["unavailablePods"] = dict(unavailable)
    whole = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1, **spec}
    obj: Json = {
        "apiVersion": "policy.kruise.io/v1beta1",
        "kind": "PodUnavailableBudget",
        "metadata": {
            "name": "shop",
            "namespace": "web",
            "uid": "uid-shop",
            "generation": generation,
            "resourceVersion": "7",
            "annotations": dict(annotations or {}),
        },
        "spec": {key: value for key, value in whole.items() if value is not None},
    }
    if observed is not None:
        obj["status"] = status
    return PodUnavailableBudget.model_validate(obj)
