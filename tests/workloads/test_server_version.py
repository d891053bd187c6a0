"""Resources of running Pods change as the API server's version requires, which is read once."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.features.cloneset.plan.settings import Gates
from app.kube.wire import Request, Response
from tests.features.cloneset.world import SmallCluster, in_cluster, rolling, template
from tests.kube.fakes import json_response

OLD, NEW = {"cpu": "100m"}, {"cpu": "200m"}


def with_cpu(limits: dict[str, str]) -> dict[str, Any]:
    made = template()
    made["spec"]["containers"][0]["resources"] = {"limits": {**limits, "memory": "1Gi"}}
    return made


class Answering:
    """Reports a version, and records the requests that change resources."""

    def __init__(self, cluster: SmallCluster, version: str) -> None:
        self.version = version
        self.asked = 0
        #: How resources were changed, and whether only in the version of the Pod that was seen.
        self.changes: list[tuple[str, bool]] = []
        cluster.sent.intercept = self.answer

    def answer(self, request: Request) -> Response | None:
        if request.path == "/version":
            self.asked += 1
            return json_response(200, {"gitVersion": self.version})
        body = orjson.loads(request.body) if request.method == "PATCH" and request.body else {}
        containers = (body.get("spec") or {}).get("containers") if isinstance(body, dict) else None
        if any("resources" in one for one in containers or ()):
            by = "resize" if request.path.endswith("/resize") else "pod"
            self.changes.append((by, "resourceVersion" in body["metadata"]))
        return None


@in_cluster(Gates(vertical_scaling=True))
@pytest.mark.behaviour("PM-37")
@pytest.mark.parametrize(("version", "by"), [("v1.34.1", "resize"), ("v1.31.9", "pod")])
async def test_resources_use_the_subresource_if_the_server_has_it(cluster: SmallCluster, version: str, by: str) -> None:
    answering = Answering(cluster, version)
    await cluster.deploy(replicas=2, template=with_cpu(OLD), updateStrategy=rolling(maxUnavailable=2))
    await cluster.patch({"spec": {"template": with_cpu(NEW)}})
    await cluster.clock.sleep(20.0)
    assert set(answering.changes) == {(by, True)}
    assert answering.asked == 1


@in_cluster
async def test_the_server_version_is_not_read_unless_resources_change(cluster: SmallCluster) -> None:
    answering = Answering(cluster, "v1.34.1")
    await cluster.deploy(replicas=2, updateStrategy=rolling(maxUnavailable=2))
    await cluster.patch({"spec": {"template": template(image="nginx:2")}})
    await cluster.settled(updatedReadyReplicas=2)
    assert answering.asked == 0
