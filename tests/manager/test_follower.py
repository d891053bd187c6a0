"""A replica that only answers reviews reads its certificate and the CRDs it needs, and writes nothing."""

import asyncio
from random import Random

import pytest

from app.certs.issue import issue
from app.certs.sources import SecretReader
from app.kube.client import Client
from app.kube.wire import Request
from app.manager.follower import MISSING_SECONDS, Follower
from app.manager.metrics import ManagerMetrics
from app.manager.shared_state import Certificate, SharedValue
from tests.kit.virtualtime import EPOCH, VirtualClock
from tests.kube.fakes import until, virtual
from tests.manager.memory import MemoryApi

HOST = "kruise-webhook-service.kruise-system.svc"
SECRET = "/api/v1/namespaces/kruise-system/secrets/kruise-webhook-certs"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sidecarsets.apps.kruise.io"


@pytest.mark.behaviour("MGR-146")
@virtual
async def test_a_follower_serves_the_published_certificate_and_disabled_kinds() -> None:
    made = issue((HOST,), EPOCH)
    metadata = {"name": "kruise-webhook-certs", "namespace": "kruise-system", "resourceVersion": "1"}
    api = MemoryApi(objects={SECRET: {"metadata": metadata, "data": made.without_ca_key.secret_data()}})
    asked: list[Request] = []
    api.fail = asked.append
    clock = VirtualClock()
    client = Client(api, clock)
    source = SecretReader(client, clock, namespace="kruise-system", name="kruise-webhook-certs", hosts=(HOST,))
    published = SharedValue(Certificate, 2**16)
    absent: list[list[str]] = []
    follower = Follower(
        client,
        source,
        ["sidecarsets.apps.kruise.io"],
        ManagerMetrics(),
        Random(1),
        published,
        absent_changed=lambda names: absent.append(sorted(names)),
    )
    following = asyncio.create_task(follower.run())
    await until(lambda: absent)
    assert published.read() == Certificate(made.cert, made.key, made.ca_cert)
    assert absent == [["sidecarsets.apps.kruise.io"]]
    api.objects[DEFINITION] = {"metadata": {"name": "sidecarsets.apps.kruise.io", "resourceVersion": "1"}}
    await clock.sleep(MISSING_SECONDS)
    await until(lambda: len(absent) > 1)
    assert absent[-1] == []
    following.cancel()
    assert {request.method for request in asked} == {"GET"}
