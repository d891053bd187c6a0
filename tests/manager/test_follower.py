"""A replica that only answers reviews reads its certificate and the CRDs it needs, and writes nothing."""

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from app.certs.issue import CertificateSet, expiry, issue
from app.certs.sources import SecretReader
from app.kube.client import Client
from app.kube.wire import Request, Response
from app.manager.follower import MISSING_SECONDS, Follower
from app.manager.metrics import ManagerMetrics
from app.manager.shared_state import Certificate, SharedValue
from tests.kit.virtualtime import EPOCH, VirtualClock
from tests.kube.fakes import json_response, running, status_body, until, virtual
from tests.manager.memory import MemoryApi

HOST = "kruise-webhook-service.kruise-system.svc"
SECRET = "/api/v1/namespaces/kruise-system/secrets/kruise-webhook-certs"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sidecarsets.apps.kruise.io"


NAME = "sidecarsets.apps.kruise.io"


def secret(made: CertificateSet) -> dict[str, Any]:
    metadata = {"name": "kruise-webhook-certs", "namespace": "kruise-system", "resourceVersion": "1"}
    return {"metadata": metadata, "data": made.without_ca_key.secret_data()}


class Followed:
    """A follower, and what it reports."""

    def __init__(self, api: MemoryApi) -> None:
        client = Client(api, VirtualClock())
        source = SecretReader(
            client, client.clock, namespace="kruise-system", name="kruise-webhook-certs", hosts=(HOST,)
        )
        self.published = SharedValue(Certificate, 2**16)
        self.absent: list[list[str]] = []
        self.metrics = ManagerMetrics()
        self.follower = Follower(
            client,
            source,
            [NAME],
            self.metrics,
            Random(1),
            self.published,
            absent_changed=lambda names: self.absent.append(sorted(names)),
        )


@pytest.mark.behaviour("MGR-146")
@virtual
async def test_a_follower_serves_the_published_certificate_and_disabled_kinds() -> None:
    made, newer = issue((HOST,), EPOCH), issue((HOST,), EPOCH + timedelta(days=1))
    api = MemoryApi(objects={SECRET: secret(made)})
    one = Followed(api)
    async with running(one.follower.run()):
        await until(lambda: one.absent)
        assert one.published.read() == Certificate(made.cert, made.key, made.ca_cert)
        assert one.absent == [[NAME]]
        api.objects[DEFINITION] = {"metadata": {"name": NAME, "resourceVersion": "1"}}
        await until(lambda: len(one.absent) > 1, MISSING_SECONDS + 1)
        assert one.absent[-1] == []
        # A CA that was never announced is served once the controllers have had time to publish it.
        api.objects[SECRET] = secret(newer)
        one.follower.wake()
        await until(lambda: one.published.read().cert == newer.cert, seconds=15)
    expires = one.metrics.registry.get_sample_value("kruise_serving_certificate_expiry_timestamp_seconds")
    assert expires == expiry(newer.cert).timestamp()
    assert {request.method for request in api.requests} == {"GET"}


@pytest.mark.behaviour("MGR-146")
@pytest.mark.parametrize("path", [SECRET, DEFINITION])
@virtual
async def test_what_a_follower_cannot_read_is_reported_and_retried(path: str, caplog: pytest.LogCaptureFixture) -> None:
    away = True

    def fail(request: Request) -> Response | None:
        return json_response(500, status_body(500, "InternalError")) if away and request.path == path else None

    api = MemoryApi(objects={SECRET: secret(issue((HOST,), EPOCH))}, fail=fail)
    one = Followed(api)
    async with running(one.follower.run()):
        await asyncio.sleep(300)
        assert "cannot read the certificate or a CustomResourceDefinition: " in caplog.text
        assert one.metrics.registry.get_sample_value("certwatcher_read_certificate_errors_total") > 9
        away = False
        await until(lambda: one.absent, seconds=31)
        # The next failure is retried soon again.
        away = True
        api.objects[DEFINITION] = {"metadata": {"name": NAME, "resourceVersion": "1"}}
        one.follower.wake()
        await asyncio.sleep(0.1)
        away = False
        await until(lambda: len(one.absent) > 1, seconds=2)
