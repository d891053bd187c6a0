"""Registration against an API server in memory: created, repaired, retried."""

import asyncio
import base64
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.admission.configurations import (
    MUTATING_NAME,
    VALIDATING_NAME,
    Endpoint,
    ServiceEndpoint,
    UrlEndpoint,
    without_match_conditions,
)
from app.api.crd import manifest
from app.api.kind import KindDefinition
from app.certs.issue import issue
from app.certs.sources import STEP_SECONDS, ExternalFolder, SecretCertificates
from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.sidecarset.kind import SIDECAR_SET
from app.kube.client import Client
from app.kube.errors import KubeError, RequestInfo, TransportError
from app.kube.wire import Request, Response
from app.manager.metrics import ManagerMetrics
from app.manager.registration import KEEP_UNKNOWN_SECONDS, REPAIRS_BURST, REPAIRS_PER_SECOND, Registration
from app.manager.shared_state import Certificate, SharedValue, families, text
from app.manager.webhook_handlers import WEBHOOKS
from tests import openkruise
from tests.kit.virtualtime import EPOCH, VirtualClock
from tests.kube.fakes import json_response, status_body, until, virtual
from tests.manager.memory import MemoryApi

#: One CRD is enough.
KINDS = (SIDECAR_SET,)
MISSING = {"definition": "sidecarsets.apps.kruise.io"}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATINGS = f"{ADMISSION}/mutatingwebhookconfigurations"
MUTATING = f"{MUTATINGS}/{MUTATING_NAME}"
VALIDATING = f"{ADMISSION}/validatingwebhookconfigurations/{VALIDATING_NAME}"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sidecarsets.apps.kruise.io"
SECRET = "/api/v1/namespaces/kruise-system/secrets/kruise-webhook-certs"
ENDPOINT = ServiceEndpoint("kruise-webhook-service", "kruise-system")
HOST = "kruise-webhook-service.kruise-system.svc"
CERTIFICATES = issue((HOST,), EPOCH)


def definition() -> dict[str, Any]:
    made = manifest(KINDS[0])
    made["metadata"]["resourceVersion"] = "1"
    return made


def secret() -> dict[str, Any]:
    metadata = {"name": "kruise-webhook-certs", "namespace": "kruise-system", "resourceVersion": "1"}
    return {"metadata": metadata, "data": CERTIFICATES.secret_data()}


def secret_certificates(client: Client) -> SecretCertificates:
    return SecretCertificates(
        client,
        client.clock,
        namespace="kruise-system",
        name="kruise-webhook-certs",
        hosts=(HOST,),
        renew_before=timedelta(days=180),
    )


def registration_on(
    api: MemoryApi,
    *,
    source: Any = None,
    shared: SharedValue[Certificate] | None = None,
    endpoint: Endpoint = ENDPOINT,
    kinds: Sequence[KindDefinition] = KINDS,
    metrics: ManagerMetrics | None = None,
    **options: Any,
) -> Registration:
    client = Client(api, VirtualClock())
    source, metrics = source or secret_certificates(client), metrics or ManagerMetrics()
    shared = shared if shared is not None else SharedValue(Certificate, 2**16)
    return Registration(client, source, endpoint, WEBHOOKS, kinds, metrics, Random(1), shared, **options)


def prepared(
    objects: Mapping[str, Any] | None = None, **options: Any
) -> tuple[MemoryApi, Registration, ManagerMetrics]:
    """Return a registration and an API server that has the CRD, a valid Secret and these objects."""
    api = MemoryApi(objects={DEFINITION: definition(), SECRET: secret(), **(objects or {})})
    metrics = ManagerMetrics()
    return api, registration_on(api, metrics=metrics, **options), metrics


async def registered(registration: Registration) -> None:
    registration.allow_registration()
    await registration.sync()


@contextlib.asynccontextmanager
async def running(registration: Registration) -> AsyncIterator[None]:
    registration.allow_registration()
    task = asyncio.create_task(registration.run())
    yield
    task.cancel()


def failing(path: str, method: str, code: int, reason: str, times: int = 1000):
    """Fail at most ``times`` requests with this path and method."""
    left = [times]

    def fail(request: Request) -> Response | None:
        if request.path == path and request.method == method and left[0]:
            left[0] -= 1
            return json_response(code, status_body(code, reason))
        return None

    return fail


@pytest.mark.behaviour("MGR-36", "MGR-42", "MGR-44", "MGR-52")
@virtual
async def test_all_registrations_get_the_authority_and_our_address() -> None:
    told: list[Collection[str]] = []
    api, registration, _ = prepared(absent_changed=told.append)
    await registered(registration)
    assert told == [set()]  # whatever a predecessor found
    for path in (MUTATING, VALIDATING):
        for entry in api.objects[path]["webhooks"]:
            assert entry["clientConfig"]["caBundle"] == CERTIFICATES.ca_bundle
            assert entry["clientConfig"]["service"]["name"] == "kruise-webhook-service"
    conversion = api.objects[DEFINITION]["spec"]["conversion"]["webhook"]["clientConfig"]
    assert conversion["caBundle"] == CERTIFICATES.ca_bundle
    assert conversion["service"]["path"] == "/convert"
    assert registration.registered.is_set()
    api.requests.clear()
    await registration.sync()
    assert {request.method for request in api.requests} == {"GET"}


@pytest.mark.behaviour("MGR-123")
@pytest.mark.parametrize(
    "change", [{"uid": "recreated by another replica"}, {"generation": 7}], ids=["uid", "generation"]
)
@virtual
async def test_a_changed_mutating_configuration_reports_since_when_webhooks_may_have_been_missing(
    change: dict[str, Any],
) -> None:
    away: list[datetime] = []
    api, registration, _ = prepared(may_have_been_away=away.append)
    await registered(registration)
    await registration.sync()
    clock = registration.clock
    await clock.sleep(5.0)
    del api.objects[VALIDATING]
    await registration.sync()
    await registration.sync()
    assert away == []
    in_place = clock.now()
    await clock.sleep(5.0)
    api.objects[MUTATING]["metadata"] |= change
    await registration.sync()
    assert away == [in_place]


@pytest.mark.parametrize("rejects", [False, True], ids=["drops", "rejects"])
@virtual
async def test_an_api_server_without_match_conditions_is_asked_once(
    rejects: bool, caplog: pytest.LogCaptureFixture
) -> None:
    api, registration, _ = prepared()

    def old(request: Request) -> Response | None:
        if b"matchConditions" not in (request.body or b""):
            return None
        if rejects:
            return json_response(422, status_body(422, "Invalid", "webhooks[0].matchConditions[0].expression: x"))
        body = json.dumps(without_match_conditions(json.loads(request.body or b""))).encode()
        return api._answer(dataclasses.replace(request, body=body))

    api.fail = old
    await registered(registration)
    await registration.sync()
    await registration.sync()
    for path in (MUTATING, VALIDATING):
        assert api.objects[path]["webhooks"]
        assert not any("matchConditions" in entry for entry in api.objects[path]["webhooks"])
    writes = len(api.requests)
    await registration.sync()
    assert all(request.method == "GET" for request in api.requests[writes:])
    assert caplog.text.count("does not support matchConditions") == 1


def owning(*fields: str) -> dict[str, Any]:
    """Return a CRD whose conversion fields are owned by the manager."""
    made = definition()
    owned = {"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": {field: {} for field in fields}}}}}
    made["metadata"]["managedFields"] = [
        {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {"f:names": {}}}},
        {"manager": "kruise-manager", "operation": "Update", "fieldsV1": owned},
    ]
    return made


def conversion_owners(api: MemoryApi) -> list[tuple[str, Any]]:
    return [(one["manager"], one["fieldsV1"]["f:spec"]) for one in api.objects[DEFINITION]["metadata"]["managedFields"]]


@pytest.mark.behaviour("MGR-142")
@virtual
async def test_the_address_in_a_definition_is_left_to_its_installer() -> None:
    owned = {DEFINITION: owning("f:caBundle", "f:url")}
    api, registration, metrics = prepared(owned, endpoint=UrlEndpoint("127.0.0.1", 9443))
    await registered(registration)
    assert api.objects[DEFINITION]["spec"]["conversion"]["webhook"]["clientConfig"]["url"]
    authority = {"f:conversion": {"f:webhook": {"f:clientConfig": {"f:caBundle": {}}}}}
    assert conversion_owners(api) == [("kubectl", {"f:names": {}}), ("kruise-manager", authority)]
    assert "kruise_registration_repairs_total{" not in text(families(metrics.registry)).decode()  # nothing had drifted
    api.requests.clear()
    await registration.sync()
    assert {request.method for request in api.requests} == {"GET"}


@pytest.mark.behaviour("MGR-142")
@pytest.mark.parametrize(("code", "reason"), [(409, "Conflict"), (403, "Forbidden"), (422, "Invalid")])
@virtual
async def test_conversion_works_without_the_right_to_give_up_the_address(code: int, reason: str) -> None:
    api, registration, _ = prepared({DEFINITION: owning("f:service")})
    await registered(registration)
    api.objects[DEFINITION]["metadata"]["managedFields"] = owning("f:service")["metadata"]["managedFields"]
    api.fail = failing(DEFINITION, "PATCH", code, reason)
    await registration.sync()
    assert registration.defined.is_set()
    assert registration.registered.is_set()
    assert [name for name, _ in conversion_owners(api)] == ["kubectl", "kruise-manager"]
    api.fail = failing(DEFINITION, "PATCH", code, reason, times=0)
    await registration.sync()
    assert [name for name, _ in conversion_owners(api)] == ["kubectl"]


@virtual
async def test_webhooks_are_registered_only_when_reviews_can_be_answered() -> None:
    api, registration, _ = prepared()
    await registration.sync()
    assert MUTATING not in api.objects
    assert not registration.registered.is_set()
    # Conversion is registered: without it, stored objects of an old version cannot be listed.
    assert "caBundle" in api.objects[DEFINITION]["spec"]["conversion"]["webhook"]["clientConfig"]


@pytest.mark.behaviour("MGR-36")
@virtual
async def test_drift_is_repaired_within_a_minute_and_counted() -> None:
    api, registration, metrics = prepared()
    async with running(registration):
        await registration.registered.wait()
        api.objects[MUTATING]["webhooks"][0]["failurePolicy"] = "Ignore"
        del api.objects[VALIDATING]
        await asyncio.sleep(61)
        assert api.objects[MUTATING]["webhooks"][0]["failurePolicy"] == "Fail"
        assert VALIDATING in api.objects
        exposed = text(families(metrics.registry)).decode()
        for what in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            assert f'kruise_registration_repairs_total{{object="{what} kruise-' in exposed


@pytest.mark.behaviour("MGR-36")
@virtual
async def test_a_new_authority_reaches_all_registrations() -> None:
    api, registration, _ = prepared()
    await registered(registration)
    newer = changed_secret(api)
    await registration.sync()
    assert registration.current.without_ca_key == newer.without_ca_key
    for path in (MUTATING, VALIDATING):
        bundle = base64.b64decode(api.objects[path]["webhooks"][0]["clientConfig"]["caBundle"])
        # Both CAs: other replicas serve the old certificate until they have seen the Secret.
        assert bundle == newer.ca_cert + CERTIFICATES.ca_cert


@virtual
async def test_a_missing_definition_is_reported_with_the_command_and_checked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api, registration, metrics = prepared()
    del api.objects[DEFINITION]
    async with running(registration):
        await until(lambda: "is missing" in caplog.text)
        assert (
            "CustomResourceDefinition sidecarsets.apps.kruise.io is missing, so its kind is disabled; run "
            "kubectl apply -f deploy/crds/" in caplog.text
        )
        assert not registration.defined.is_set()
        assert metrics.registry.get_sample_value("kruise_manager_missing_definitions", MISSING) == 1
        await asyncio.sleep(30)
        assert caplog.text.count("is missing") == 1
        api.objects[DEFINITION] = definition()
        async with asyncio.timeout(2):
            await registration.defined.wait()
    assert metrics.registry.get_sample_value("kruise_manager_missing_definitions", MISSING) == 0


@virtual
@pytest.mark.behaviour("MGR-52")
async def test_one_missing_definition_delays_nothing() -> None:
    told: list[Collection[str]] = []
    api, registration, _ = prepared(absent_changed=told.append, kinds=(SIDECAR_SET, EPHEMERAL_JOB))
    await registered(registration)
    await registration.sync()
    assert registration.defined.is_set()
    assert registration.registered.is_set()
    api.objects[DEFINITION.replace("sidecarsets", "ephemeraljobs")] = manifest(EPHEMERAL_JOB)
    await registration.sync()
    assert told == [{"ephemeraljobs.apps.kruise.io"}, set()]


@pytest.mark.behaviour("MGR-36")
@virtual
async def test_a_definition_without_conversion_need_not_be_readable() -> None:
    api, registration, _ = prepared(kinds=(SIDECAR_SET, EPHEMERAL_JOB))
    api.fail = failing(DEFINITION.replace("sidecarsets", "ephemeraljobs"), "GET", 403, "Forbidden")
    await registered(registration)
    assert registration.registered.is_set()


@virtual
async def test_an_unavailable_api_server_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    api, registration, metrics = prepared()
    away = True

    def fail(request: Request) -> Response | None:
        if away:
            raise TransportError(RequestInfo(request.method, request.path), "connection refused")
        return None

    api.fail = fail
    async with running(registration):
        await asyncio.sleep(300)
        assert "registering webhooks failed: GET /apis/apiextensions.k8s.io" in caplog.text
        assert "kruise_registration_failures_total 0.0" not in text(families(metrics.registry)).decode()
        away = False
        async with asyncio.timeout(31):
            await registration.registered.wait()
        # The next failure is retried soon again.
        away = True
        del api.objects[MUTATING]
        registration.wake()
        await asyncio.sleep(0.1)
        away = False
        await until(lambda: MUTATING in api.objects, seconds=2)


@pytest.mark.parametrize(
    ("path", "method", "reason"),
    [(MUTATING, "PUT", "Conflict"), (DEFINITION, "PATCH", "Conflict"), (MUTATINGS, "POST", "AlreadyExists")],
    ids=["changed configuration", "changed definition", "created configuration"],
)
@virtual
async def test_a_write_of_another_replica_causes_an_immediate_retry(path: str, method: str, reason: str) -> None:
    live = {"metadata": {"name": MUTATING_NAME, "resourceVersion": "1"}, "webhooks": []}
    api, registration, _ = prepared({MUTATING: live} if path == MUTATING else {})
    api.fail = failing(path, method, 409, reason, times=1)
    async with running(registration):

        def in_place() -> bool:
            conversion = api.objects[DEFINITION]["spec"]["conversion"]["webhook"]["clientConfig"]
            return bool(api.objects.get(MUTATING, live)["webhooks"]) and "caBundle" in conversion

        await until(in_place, seconds=1)


@virtual
async def test_a_missing_right_is_reported_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    api, registration, _ = prepared()
    message = 'secrets "kruise-webhook-certs" is forbidden: User "x" cannot get resource "secrets"'
    api.fail = lambda r: json_response(403, status_body(403, "Forbidden", message)) if r.path == SECRET else None
    async with running(registration):
        await until(lambda: message in caplog.text)
        api.fail = lambda _: None
        await until(lambda: registration.current is not None, 60)


def entry(name: str) -> dict[str, Any]:
    """Return an entry of another version of the manager, with an outdated address and CA."""
    service = {"name": "old-service", "namespace": "kruise-system", "path": f"/validate-{name}", "port": 443}
    return {"name": f"{name}.kb.io", "clientConfig": {"service": service, "caBundle": "b2xk"}, "rules": []}


def names(api: MemoryApi) -> list[str]:
    return [entry["name"] for entry in api.objects[VALIDATING]["webhooks"]]


@pytest.mark.behaviour("MGR-101", "MGR-120")
@virtual
async def test_entries_of_another_version_keep_their_order_until_the_leader_saw_a_rollout() -> None:
    leading = False
    api, registration, _ = prepared(leading=lambda: leading)
    await registered(registration)
    api.objects[VALIDATING]["webhooks"].append(entry("newkind"))
    async with running(registration):
        # A replica without the Lease keeps the entry but sets its address and CA.
        await asyncio.sleep(600)
        assert names(api)[-1] == "newkind.kb.io"
        config = api.objects[VALIDATING]["webhooks"][-1]["clientConfig"]
        assert config["caBundle"] == CERTIFICATES.ca_bundle
        assert config["service"] == {
            "name": "kruise-webhook-service",
            "namespace": "kruise-system",
            "path": "/validate-newkind",
            "port": 443,
        }
        leading = True
        registration.wake()
        await asyncio.sleep(KEEP_UNKNOWN_SECONDS - 5)
        api.objects[VALIDATING]["webhooks"].append(entry("newest"))
        registration.wake()
        await asyncio.sleep(6)
        registration.wake()
        await asyncio.sleep(1)
        assert names(api)[-2:] == ["newkind.kb.io", "newest.kb.io"]  # the rollout has not ended
        await asyncio.sleep(KEEP_UNKNOWN_SECONDS + 5)
        assert not {"newkind.kb.io", "newest.kb.io"} & set(names(api))
        registration.wake()
        await asyncio.sleep(1)
        api.objects[VALIDATING]["webhooks"].append(entry("newkind"))
        registration.wake()
        await asyncio.sleep(5)
        assert "newkind.kb.io" in names(api)


@pytest.mark.behaviour("MGR-140", "MGR-41")
@virtual
async def test_openkruise_entries_point_to_us_at_once_and_unserved_ones_are_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = {webhook.name for webhook in WEBHOOKS}
    installed = {item["metadata"]["name"]: item for item in openkruise.installed() if "webhooks" in item}
    live = {path: installed[path.rpartition("/")[2]] for path in (MUTATING, VALIDATING)}
    # As for a manager outside the cluster: the entries name a Service, and the manager is registered by URL.
    api, registration, _ = prepared(live, endpoint=UrlEndpoint("127.0.0.1", 9443))
    await registered(registration)
    for path in (MUTATING, VALIDATING):
        entries = {entry["name"]: entry for entry in api.objects[path]["webhooks"]}
        for before in installed[path.rpartition("/")[2]]["webhooks"]:
            config = entries[before["name"]]["clientConfig"]
            assert config["url"].startswith("https://127.0.0.1:9443/")
            assert "service" not in config
    async with running(registration):
        await asyncio.sleep(KEEP_UNKNOWN_SECONDS + 5)
        for path in (MUTATING, VALIDATING):
            assert {entry["name"] for entry in api.objects[path]["webhooks"]} <= served
            assert api.objects[path]["metadata"]["annotations"].keys() == {"template"}
            gone = {entry["name"] for entry in installed[path.rpartition("/")[2]]["webhooks"]} - served
            if gone:
                assert f"removed entries that are not served here: {', '.join(sorted(gone))}" in caplog.text


@pytest.mark.behaviour("MGR-101")
@virtual
async def test_the_leader_decides_the_content_of_an_entry() -> None:
    leading = False
    api, registration, _ = prepared(leading=lambda: leading)
    await registered(registration)
    ours = api.objects[VALIDATING]["webhooks"][0]
    api.objects[VALIDATING]["webhooks"][0] = {**ours, "timeoutSeconds": 1, "clientConfig": entry("x")["clientConfig"]}
    await registration.sync()
    found = api.objects[VALIDATING]["webhooks"][0]
    assert found["timeoutSeconds"] == 1
    assert found["clientConfig"]["caBundle"] == CERTIFICATES.ca_bundle
    leading = True
    await registration.sync()
    assert api.objects[VALIDATING]["webhooks"][0]["timeoutSeconds"] == ours["timeoutSeconds"]


@virtual
async def test_two_disagreeing_managers_do_not_load_the_api_server() -> None:
    api, registration, _ = prepared()
    async with running(registration):
        await registration.registered.wait()
        for _ in range(600):
            api.objects[VALIDATING]["webhooks"][0]["timeoutSeconds"] = 1
            registration.wake()
            await asyncio.sleep(0.1)
        repairs = sum(request.method == "PUT" for request in api.requests)
        objects = len(KINDS) + 2
        assert objects * REPAIRS_BURST * 0.5 < repairs < objects * (REPAIRS_BURST + 60 * REPAIRS_PER_SECOND) + 1


@pytest.mark.parametrize(
    ("method", "path", "code", "reason", "message", "registers"),
    [
        # Reviews do not depend on conversion, and unreadable definitions are assumed to exist.
        ("PATCH", DEFINITION, 403, "Forbidden", f"{MISSING['definition']}: cannot patch", True),
        ("GET", DEFINITION, 403, "Forbidden", f"{MISSING['definition']}: cannot get", True),
        ("POST", MUTATINGS, 403, "Forbidden", "mutatingwebhookconfigurations: cannot create", False),
        ("POST", MUTATINGS, 422, "Invalid", "webhooks[0].timeoutSeconds: must be at most 30", False),
    ],
    ids=["patch-definition", "get-definition", "create-configuration", "invalid-configuration"],
)
@virtual
async def test_a_refusal_is_reported_and_the_rest_is_done(
    method: str, path: str, code: int, reason: str, message: str, registers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    api, registration, _ = prepared()
    refusal = json_response(code, status_body(code, reason, message))
    api.fail = lambda request: refusal if (request.method, request.path) == (method, path) else None
    async with running(registration):
        await until(lambda: message in caplog.text)
        assert VALIDATING in api.objects
        assert registration.defined.is_set()
        assert registration.registered.is_set() == registers


@virtual
async def test_an_overloaded_api_server_is_retried_after_the_requested_delay() -> None:
    api, registration, _ = prepared()
    asked: list[float] = []

    def busy(request: Request) -> Response | None:
        now = asyncio.get_running_loop().time()
        if now < 90:
            asked.append(now)
            return json_response(429, status_body(429, "TooManyRequests"), Retry_After="5")
        return None

    api.fail = busy
    async with running(registration):
        async with asyncio.timeout(150):
            await registration.registered.wait()
        assert len(asked) <= 90 / 4  # each request waits; the next one starts again


@pytest.mark.behaviour("MGR-35")
@virtual
async def test_with_external_certificates_only_their_authority_is_written(tmp_path: Path) -> None:
    for name, content in zip(
        ("ca-cert.pem", "tls.crt", "tls.key"), (CERTIFICATES.ca_cert, CERTIFICATES.cert, CERTIFICATES.key), strict=True
    ):
        (tmp_path / name).write_bytes(content)
    api = MemoryApi(objects={DEFINITION: definition()})
    registration = registration_on(api, source=ExternalFolder(tmp_path, VirtualClock()))
    await registered(registration)
    assert api.objects[VALIDATING]["webhooks"][0]["clientConfig"]["caBundle"] == CERTIFICATES.ca_bundle
    assert SECRET not in api.objects
    # A replica with newer files has published another CA: both stay for a while.
    newer = issue(("a",), EPOCH)
    for path in (MUTATING, VALIDATING):
        for webhook in api.objects[path]["webhooks"]:
            webhook["clientConfig"]["caBundle"] = newer.ca_bundle
    api.objects[DEFINITION]["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = newer.ca_bundle
    await registration.sync()
    both = api.objects[VALIDATING]["webhooks"][0]["clientConfig"]["caBundle"]
    assert base64.b64decode(both) == newer.ca_cert + CERTIFICATES.ca_cert
    async with running(registration):
        await asyncio.sleep(STEP_SECONDS + 60)
        assert api.objects[VALIDATING]["webhooks"][0]["clientConfig"]["caBundle"] == CERTIFICATES.ca_bundle


def changed_secret(api: MemoryApi) -> Any:
    """Store certificates of another CA in the Secret, and return them."""
    newer = issue((HOST,), EPOCH)
    api.objects[SECRET] = {**secret(), "data": newer.secret_data()}
    return newer


@pytest.mark.behaviour("MGR-36")
@pytest.mark.parametrize(
    ("code", "reason", "served_at_once"),
    [(409, "Conflict", False), (500, "InternalError", False), (403, "Forbidden", True)],
    ids=["conflict", "failure", "another replica publishes"],
)
@virtual
async def test_a_certificate_is_not_served_before_its_authority_is_published(
    code: int, reason: str, served_at_once: bool
) -> None:
    api, registration, _ = prepared()
    await registered(registration)
    newer = changed_secret(api)
    api.fail = failing(VALIDATING, "PUT", code, reason, times=1)
    with contextlib.suppress(KubeError):
        await registration.sync()
    assert registration.current.without_ca_key == (newer if served_at_once else CERTIFICATES).without_ca_key
    await registration.sync()
    assert registration.current.without_ca_key == newer.without_ca_key


@pytest.mark.behaviour("MGR-36")
@pytest.mark.parametrize("path", [DEFINITION, MUTATING, VALIDATING])
@pytest.mark.parametrize(
    ("methods", "code", "reason"), [(("GET",), 500, "InternalError"), (("PATCH", "PUT"), 409, "Conflict")]
)
@virtual
async def test_a_rotation_waits_until_its_bundle_is_in_place_everywhere(
    path: str, methods: tuple[str, ...], code: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete: list[bool] = []
    monkeypatch.setattr(SecretCertificates, "published", lambda _, found: complete.append(found))
    api, registration, _ = prepared()
    for _ in range(2):
        await registration.sync()  # reviews cannot be answered yet
    await registered(registration)
    await registration.sync()
    changed_secret(api)
    refusal = json_response(code, status_body(code, reason))
    api.fail = lambda request: refusal if request.path == path and request.method in methods else None
    for _ in range(2):
        with contextlib.suppress(KubeError):
            await registration.sync()
    assert complete == [False, False, False, True, False, False]


@pytest.mark.behaviour("MGR-36")
@virtual
async def test_surviving_listeners_get_no_untrusted_certificate() -> None:
    shared = SharedValue(Certificate, 2**16)
    api, before, _ = prepared(shared=shared)
    await registered(before)
    newer = changed_secret(api)
    for webhook in api.objects[VALIDATING]["webhooks"]:  # another replica is about to publish the CA
        webhook["clientConfig"]["caBundle"] = newer.ca_bundle
    after = registration_on(api, shared=shared)
    await after.use_certificate()
    await after.sync()  # may not write configurations yet
    assert shared.read().cert == CERTIFICATES.cert
    await registered(after)
    served = shared.read()
    assert served.cert == newer.cert
    # Other replicas may still serve the certificate of the published CA.
    assert served.ca_bundle == newer.ca_cert + CERTIFICATES.ca_cert
