"""The admission service over HTTP: routes, bad input, counting."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from app.admission import metrics as summary
from app.admission.metrics import SUMMARY_SECONDS, AdmissionMetrics
from app.admission.registry import build_registry
from app.admission.requests import MAX_BODY_BYTES
from app.admission.server import AdmissionApp, create_app
from app.api.conversion import convert
from app.kube.admission import (
    LEAVES_NO_TRACE,
    Allowed,
    Decide,
    Denied,
    Handler,
    Operation,
    Patched,
    PatchOperation,
    Review,
    Rule,
    Webhook,
)
from app.kube.errors import RequestInfo, TransportError
from tests.admission.requests import patch_of, recorded, review_of
from tests.kube.fakes import virtual

UID = recorded("pod-create")["request"]["uid"]
JSON = {"Content-Type": "application/json"}


def service(
    decide: Decide,
    metrics: AdmissionMetrics | None = None,
    timeout_seconds: int = 10,
    failure_policy: Literal["Fail", "Ignore"] = "Fail",
) -> AdmissionApp:
    webhook = Webhook(
        name="mpod.kb.io",
        path="/mutate-pod",
        mutating=True,
        rules=(Rule((Operation.CREATE, Operation.DELETE), ("",), ("v1",), ("pods",)),),
        summary="test",
        timeout_seconds=timeout_seconds,
        failure_policy=failure_policy,
    )
    registry = build_registry([Handler(webhook, decide)], lambda _: True)
    return create_app(registry, convert, metrics or AdmissionMetrics())


async def requested(
    app: AdmissionApp, path: str = "/mutate-pod", body: bytes | None = None, method: str = "POST", **headers: str
) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://service") as http:
        if body is None and method == "POST":
            body = review_of()
        return await http.request(method, path, content=body, headers=headers if body is None else JSON | headers)


async def ask(app: AdmissionApp, body: bytes | None = None, path: str = "/mutate-pod", **headers: str) -> Any:
    answer = await requested(app, path, body, **headers)
    assert answer.status_code == 200
    return answer.json()


def allow(_review: Review) -> Allowed:
    return Allowed()


def scrape(metrics: AdmissionMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


@pytest.mark.behaviour("MGR-45")
async def test_a_recorded_review_is_answered_under_its_uid() -> None:
    assert await ask(service(allow)) == {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "response": {"uid": UID, "allowed": True, "status": {"metadata": {}, "code": 200}},
    }


async def test_a_handler_may_be_synchronous_or_asynchronous() -> None:
    async def patch(review: Review) -> Patched:
        await asyncio.sleep(0)
        return Patched((PatchOperation("add", "/metadata/labels/seen", review.name, "T-1"),))

    answer = await ask(service(patch))
    assert patch_of(answer) == [{"op": "add", "path": "/metadata/labels/seen", "value": "web-0"}]


async def test_a_refusal_has_message_reason_and_code_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answer = await ask(service(lambda _: Denied("not today", code=403, reason="Forbidden")))
    status = {"metadata": {}, "message": "not today", "reason": "Forbidden", "code": 403}
    assert answer["response"] == {"uid": UID, "allowed": False, "status": status}
    assert "denied CREATE Pod shop/web-0: not today" in caplog.text


async def test_a_deletion_of_a_collection_has_no_name_and_no_object() -> None:
    answer = await ask(service(lambda _: Denied("not all")), review_of("pod-delete", name="", oldObject=None))
    assert answer["response"]["status"]["message"] == "not all"


@pytest.mark.behaviour("MGR-21")
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
async def test_healthz_answers_200_to_any_method(method: str) -> None:
    assert (await requested(service(allow), "/healthz", method=method)).status_code == 200


@pytest.mark.behaviour("MGR-122")
async def test_an_old_path_returns_the_same_answer() -> None:
    webhook = Webhook(
        name="msidecarset.kb.io",
        path="/mutate-apps-kruise-io-sidecarset",
        mutating=True,
        rules=(Rule((Operation.CREATE,), ("apps.kruise.io",), ("v1alpha1", "v1beta1"), ("sidecarsets",)),),
        summary="test",
    )
    app = create_app(build_registry([Handler(webhook, allow)], lambda _: True), convert, AdmissionMetrics())
    for path in ("/mutate-apps-kruise-io-sidecarset", "/mutate-apps-kruise-io-v1alpha1-sidecarset"):
        answer = await ask(app, review_of("sidecarset-create-v1alpha1"), path)
        assert answer["response"]["allowed"] is True


async def test_the_framework_serves_only_declared_routes() -> None:
    app = service(allow)
    assert {"/mutate-pod", "/convert", "/healthz"} <= {getattr(route, "path", "") for route in app.routes}
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert (await requested(app, path, method="GET")).status_code == 404


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("MGR-45")
@pytest.mark.parametrize(
    ("content_type", "shown"),
    [
        ("text/plain", '"text/plain"'),
        ("application/x-www-form-urlencoded", '"application/x-www-form-urlencoded"'),
        ("", "nothing"),
    ],
)
async def test_a_wrong_content_type_is_refused_under_the_uid(content_type: str, shown: str) -> None:
    response = (await ask(service(allow), **{"Content-Type": content_type}))["response"]
    assert (response["uid"], response["status"]["code"]) == (UID, 400)
    assert response["status"]["message"] == f"Content-Type: expected application/json, got {shown}"


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
async def test_json_content_types_are_recognized_in_all_spellings(content_type: str) -> None:
    assert (await ask(service(allow), **{"Content-Type": content_type}))["response"]["allowed"] is True


async def test_a_body_of_10_mebibytes_is_refused_under_the_uid() -> None:
    metrics = AdmissionMetrics()
    padded = review_of(options={"padding": "x" * (10 * 1024 * 1024)})
    answer = await ask(service(allow, metrics), padded)
    assert answer["response"]["uid"] == UID
    assert answer["response"]["status"]["code"] == 413
    assert answer["response"]["status"]["message"] == "request body is larger than 7 MiB"
    assert 'kruise_admission_bad_requests_total{reason="too_large",webhook="/mutate-pod"} 1.0' in scrape(metrics)


async def test_an_endless_body_is_not_buffered() -> None:
    kept = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal kept
        while True:
            kept += 1
            yield b" " * (1024 * 1024)

    messages = aiter(endless())

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await anext(messages), "more_body": True}

    status, body = await raw(service(allow), receive)
    assert status == 413
    assert b"larger than 7 MiB" in body
    assert kept <= MAX_BODY_BYTES // (1024 * 1024) + 1


async def test_a_disconnected_client_is_counted_and_not_answered() -> None:
    metrics = AdmissionMetrics()

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    assert await raw(service(allow, metrics), receive) == (0, b"")
    assert 'reason="disconnected"' in scrape(metrics)
    assert 'requests_in_flight{webhook="/mutate-pod"} 0.0' in scrape(metrics)


async def test_a_body_may_arrive_in_chunks() -> None:
    whole = review_of()
    pieces = [whole[:10], whole[10:500], whole[500:]]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    status, body = await raw(service(allow), receive)
    assert (status, json.loads(body)["response"]["allowed"]) == (200, True)


async def raw(app: AdmissionApp, receive: Callable[[], Any]) -> tuple[int, bytes]:
    """Call the ASGI application as a server would."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mutate-pod", "headers": headers, "query_string": b""}
    await app(scope, receive, send)
    if not sent:
        return 0, b""
    return sent[0]["status"], sent[1]["body"]


async def test_reviews_require_post() -> None:
    answer = await requested(service(allow), method="GET")
    assert answer.status_code == 405
    assert answer.json()["response"]["status"]["message"] == "method: expected POST, got GET"


@pytest.mark.behaviour("MGR-43", "MGR-101")
async def test_reviews_of_replicas_with_other_gates_are_allowed() -> None:
    """A rollout that enables a gate registers its webhook while old replicas still serve."""
    rules = (Rule((Operation.CREATE,), ("",), ("v1",), ("pods",)),)
    webhook = Webhook("mpod.kb.io", "/mutate-pod", True, rules, "test", gate="PodWebhook")
    registry = build_registry([Handler(webhook, lambda _: Denied("not asked"))], lambda _: False)
    answer = await ask(create_app(registry, convert, AdmissionMetrics()))
    assert answer["response"] == {"uid": UID, "allowed": True, "status": {"metadata": {}, "code": 200}}


async def test_an_unknown_webhook_path_is_answered_under_the_uid() -> None:
    assert (await requested(service(allow), "/nowhere", method="GET")).status_code == 404
    response = (await ask(service(allow), path="/pods"))["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == (UID, False, 404)
    assert response["status"]["message"] == "no webhook is served at /pods; served paths are /mutate-pod"


@pytest.mark.behaviour("MGR-141")
@pytest.mark.parametrize("path", ["/validate-pod", "/validate-apps-kruise-io-v1alpha1-newkind", "/mutate-pods"])
async def test_reviews_for_another_version_are_allowed_and_counted(path: str, caplog: pytest.LogCaptureFixture) -> None:
    metrics = AdmissionMetrics()
    app = create_app(build_registry([], lambda _: True), convert, metrics)
    for _ in range(3):
        answer = await ask(app, path=path)
        assert answer["response"] == {"uid": UID, "allowed": True, "status": {"metadata": {}, "code": 200}}
    assert (await requested(app, path, b"[]")).json()["response"]["allowed"] is False
    assert metrics.path("unknown").decisions == {("unserved", "allowed"): 3}
    assert caplog.text.count(path) == 1


@pytest.mark.behaviour("MGR-141")
async def test_the_log_names_a_limited_number_of_paths(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(build_registry([], lambda _: True), convert, AdmissionMetrics())
    for number in range(100):
        await requested(app, f"/mutate-kind{number}")
    assert caplog.text.count("which this version does not serve") == 64


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not_json"),
        (b"not json", "not_json"),
        (b"{}", "not_a_review"),
        (b"\xff", "not_utf8"),
        (review_of(uid=""), "missing_uid"),
        (review_of(operation=5), "wrong_field"),
        (review_of().replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), "unsupported_version"),
    ],
    ids=["empty", "text", "object", "bytes", "no uid", "wrong type", "v1beta1"],
)
async def test_every_bad_request_is_counted_and_logged(
    body: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = AdmissionMetrics()
    response = (await requested(service(allow, metrics), body=body)).json()["response"]
    assert response["allowed"] is False
    assert f'kruise_admission_bad_requests_total{{reason="{reason}",webhook="/mutate-pod"}} 1.0' in scrape(metrics)
    assert response["status"]["message"] in caplog.text
    assert "Traceback" not in caplog.text


# --- when a handler fails ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("MGR-45")
async def test_a_handler_bug_is_a_500_with_webhook_and_object() -> None:
    metrics = AdmissionMetrics()

    def broken(_review: Review) -> Allowed:
        raise KeyError("containers")

    response = (await ask(service(broken, metrics)))["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == (UID, False, 500)
    assert response["status"]["message"] == "mpod.kb.io failed on Pod shop/web-0: KeyError: 'containers'"
    assert 'controller_runtime_webhook_panics_total{webhook="/mutate-pod"} 1.0' in scrape(metrics)
    assert 'kruise_admission_decisions_total{outcome="error",webhook="mpod.kb.io"} 1.0' in scrape(metrics)


async def hanging(_review: Review) -> Allowed:
    await asyncio.Event().wait()
    return Allowed()


async def spent(_review: Review) -> Allowed:
    raise TimeoutError("too many requests to the API server")


async def unreachable(_review: Review) -> Allowed:
    raise TransportError(RequestInfo("GET", "/api"), "connection refused")


@pytest.mark.behaviour("MGR-45", "MGR-155")
@pytest.mark.parametrize(
    ("decide", "code", "why"),
    [
        (hanging, 503, "no answer within 0 s"),
        (spent, 503, "too many requests to the API server"),
        (unreachable, 500, "GET /api: connection refused"),
    ],
)
async def test_the_failure_policy_answers_if_no_decision_can_be_made(decide: Decide, code: int, why: str) -> None:
    message, metrics = f"mpod.kb.io could not check Pod shop/web-0: {why}", AdmissionMetrics()
    refused = (await ask(service(decide, metrics, timeout_seconds=0)))["response"]
    assert (refused["allowed"], refused["status"]["code"], refused["status"]["message"]) == (False, code, message)
    assert 'controller_runtime_webhook_panics_total{webhook="/mutate-pod"} 0.0' in scrape(metrics)
    passed = (await ask(service(decide, timeout_seconds=0, failure_policy="Ignore")))["response"]
    assert (passed["allowed"], passed["warnings"]) == (True, [message])


@pytest.mark.parametrize("decision", ["yes", Patched((PatchOperation("add", "/x", {1, 2}),))], ids=["text", "patch"])
async def test_an_invalid_decision_is_an_answered_internal_error(decision: Any) -> None:
    response = (await ask(service(lambda _: decision)))["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == (UID, False, 500)


async def test_reviews_are_refused_before_caches_are_synced() -> None:
    app = service(allow)
    app.starting = "its caches are not filled yet"
    response = (await ask(app))["response"]
    assert (response["allowed"], response["status"]["code"]) == (False, 503)
    assert response["status"]["message"] == "pykruise is starting: its caches are not filled yet"
    app.starting = ""
    assert (await ask(app))["response"]["allowed"] is True


async def test_stopping_closes_client_connections() -> None:
    app = service(allow)
    assert "connection" not in (await requested(app)).headers
    app.draining = True
    assert (await requested(app)).headers["connection"] == "close"


@pytest.mark.behaviour("MGR-154")
async def test_reviews_of_strangers_leave_no_trace() -> None:
    tried: list[bool] = []
    token = LEAVES_NO_TRACE.set(True)
    await ask(service(lambda review: tried.append(review.dry_run) or Allowed()))
    LEAVES_NO_TRACE.reset(token)
    assert tried == [True]


@pytest.mark.behaviour("MGR-25")
async def test_request_metrics_have_the_names_dashboards_expect() -> None:
    metrics = AdmissionMetrics()
    app = service(allow, metrics)
    for _ in range(3):
        await ask(app)
    text = scrape(metrics)
    assert 'controller_runtime_webhook_requests_total{code="200",webhook="/mutate-pod"} 3.0' in text
    assert 'controller_runtime_webhook_latency_seconds_count{webhook="/mutate-pod"} 3.0' in text
    assert 'controller_runtime_webhook_latency_seconds_bucket{le="+Inf",webhook="/mutate-pod"} 3.0' in text
    assert 'controller_runtime_webhook_requests_in_flight{webhook="/mutate-pod"} 0.0' in text
    assert 'kruise_admission_decisions_total{outcome="allowed",webhook="mpod.kb.io"} 3.0' in text


@pytest.mark.parametrize("field", ["name", "namespace", "subresource", "username", "kind", "metadata"])
async def test_a_review_leaves_little_in_memory_regardless_of_its_content(field: str) -> None:
    """The debug page and the next summary keep a hundred names, and a forged name may have six megabytes."""
    app = service(lambda _: Denied("no"))
    document = json.loads(review_of())
    request, long = document["request"], "n" * 1_000_000
    if field == "metadata":
        request["name"], request["object"]["metadata"]["name"] = "", long
    else:
        {"username": request["userInfo"], "kind": request["kind"]}.get(field, request)[field] = long
    await ask(app, json.dumps(document).encode())
    assert all(len("".join(map(str, decided))) < 2_000 for decided in app.decisions)
    assert len(app._last_decision()) < 2_000


async def test_many_reviews_produce_few_log_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "SINGLE_LINES", 3)
    caplog.set_level(logging.INFO)
    metrics = AdmissionMetrics()
    app = service(lambda review: Denied("no") if review.dry_run else Allowed(), metrics)
    refused = json.loads(review_of())
    refused["request"]["dryRun"] = True
    for _ in range(50):
        for body in (review_of(), json.dumps(refused).encode(), b"nonsense"):
            await requested(app, body=body)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("app.")]
    assert len(lines) == 3
    caplog.clear()
    app.review_log.end()
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("reviews in the last 60 s: allowed 50, denied 50, not_json 50; latest: ")
    assert second == "97 more denials and failures were not logged"
    for _ in range(3):  # few enough in each interval
        caplog.clear()
        app.review_log.end()
        for _ in range(2):
            await requested(app, body=b"nonsense")
        lines = [record.getMessage() for record in caplog.records if record.name.startswith("app.")]
        assert len([line for line in lines if not line.startswith("reviews in")]) == 2
    app.review_log.end()
    caplog.clear()
    app.review_log.end()
    assert not caplog.records


@virtual
async def test_the_log_sums_up_reviews_every_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = service(allow)
    for _ in range(2):
        await ask(app)
        await asyncio.sleep(SUMMARY_SECONDS)
    assert caplog.text.count("reviews in the last 60 s: allowed 1") == 2
