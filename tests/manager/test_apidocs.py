"""The API documentation: every webhook with models, rules and a review that the service itself answers."""

from __future__ import annotations

from random import Random
from typing import Any

import httpx
import pytest

from app.admission.metrics import AdmissionMetrics
from app.admission.server import AdmissionApp, create_app
from app.api.conversion import convert
from app.kube.clock import SystemClock
from app.manager.apidocs import AdmissionAnswer, AdmissionReview, add_pages, review
from app.manager.gates import GATES, parse_gates
from app.manager.generated_indexes import rules
from app.manager.standalone import Standalone

pytestmark = pytest.mark.behaviour("MGR-148")
ALL_ON = ",".join(f"{name}=true" for name in GATES)


@pytest.fixture(scope="module")
def standalone() -> Standalone:
    return Standalone(None, parse_gates(ALL_ON), SystemClock(), Random(1))


def service(standalone: Standalone, **options: bool) -> AdmissionApp:
    app = create_app(standalone.registry, convert, AdmissionMetrics())
    add_pages(app, standalone.registry, **options)
    return app


def client(app: AdmissionApp, address: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 4711))
    return httpx.AsyncClient(transport=transport, base_url="https://localhost:9443")


async def test_every_webhook_is_described_with_models_rules_and_examples(standalone: Standalone) -> None:
    async with client(service(standalone)) as http:
        document: dict[str, Any] = (await http.get("/openapi.json")).json()
    assert document["paths"].keys() == standalone.registry.routes.keys()
    for webhook in standalone.registry.webhooks:
        operation = document["paths"][webhook.path]["post"]
        assert webhook.summary.rstrip(".") in operation["description"]
        for id_ in list(rules().get(webhook.path, {}))[:3]:
            assert f"`{id_}`" in operation["description"]
        body = operation["requestBody"]["content"]["application/json"]
        assert body["schema"]["$ref"].endswith("/AdmissionReview")
        assert body["examples"][webhook.name]["value"] == review(webhook)


async def test_the_service_answers_every_example(standalone: Standalone) -> None:
    async with client(service(standalone)) as http:
        for webhook in standalone.registry.webhooks:
            question = review(webhook)
            AdmissionReview.model_validate(question)
            answer = await http.post(webhook.path, json=question)
            assert answer.status_code == 200, webhook.name
            response = AdmissionAnswer.model_validate(answer.json()).response
            assert response.uid == question["request"]["uid"]
            assert response.status is None or response.status.code < 500, (webhook.name, response.status)


async def test_the_page_loads_nothing_from_other_hosts(standalone: Standalone) -> None:
    async with client(service(standalone)) as http:
        page = await http.get("/docs")
        assert page.status_code == 200
        assert "https://" not in page.text
        script = page.text.split('src="')[1].split('"')[0]
        assert (await http.get(script)).status_code == 200
        assert (await http.get("/nowhere")).status_code == 404
        assert (await http.get("/healthz")).text == "ok"


async def test_the_api_pages_are_shown_on_loopback_only(standalone: Standalone) -> None:
    app = service(standalone, loopback_only=True)
    async with client(app) as here, client(app, "10.1.2.3") as elsewhere:
        assert (await here.get("/docs")).status_code == 200
        assert (await elsewhere.get("/docs")).status_code == 403
        assert (await elsewhere.get("/openapi.json")).status_code == 403
        assert (await here.get("/docs", headers={"Host": "attacker.example.com"})).status_code == 403
