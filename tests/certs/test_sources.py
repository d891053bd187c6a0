"""The certificate Secret: created, read, repaired, written concurrently."""

import base64
from datetime import timedelta
from typing import Any

import orjson
import pytest

from app.certs.issue import CertificateError, CertificateSet, fault_of, from_secret_data, issue
from app.certs.rotation import blocks
from app.certs.sources import STEP_SECONDS, SecretCertificates, SecretReader
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.wire import Request, Response
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body, virtual
from tests.manager.memory import MemoryApi

PATH = "/api/v1/namespaces/kruise-system/secrets/kruise-webhook-certs"
HOST = "kruise-webhook-service.kruise-system.svc"
RENEW = timedelta(days=180)


def source(api: MemoryApi, clock: VirtualClock | None = None) -> SecretCertificates:
    clock = clock or VirtualClock()
    return SecretCertificates(
        Client(api, clock),
        clock,
        namespace="kruise-system",
        name="kruise-webhook-certs",
        hosts=(HOST,),
        renew_before=RENEW,
    )


def reading(api: MemoryApi, clock: VirtualClock) -> SecretReader:
    client = Client(api, clock)
    return SecretReader(client, clock, namespace="kruise-system", name="kruise-webhook-certs", hosts=(HOST,))


def secret(data: dict[str, str] | None) -> dict[str, Any]:
    metadata = {"name": "kruise-webhook-certs", "namespace": "kruise-system", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **({"data": data} if data else {})}


def stored(api: MemoryApi) -> CertificateSet:
    return from_secret_data(api.objects[PATH]["data"])


@pytest.mark.behaviour("MGR-32")
@virtual
async def test_a_missing_secret_is_created() -> None:
    api = MemoryApi()
    made = await source(api).ensure()
    assert stored(api) == made
    assert fault_of(made, (HOST,), VirtualClock().now(), RENEW) == ""


@pytest.mark.behaviour("MGR-147")
@virtual
async def test_a_replica_that_reads_the_secret_can_serve_but_not_sign() -> None:
    api = MemoryApi()
    made = await source(api).ensure()
    assert made.ca_key == b""
    assert not [name for name in api.objects[PATH]["data"] if "ca-key" in name]
    # A rotation renewed it; each step trusted the served certificates. There is still no signing key.
    clock = VirtualClock(VirtualClock().now() + timedelta(days=3650) - RENEW)
    ours = source(api, clock)
    authorities = {made.ca_cert}
    for _ in range(6):
        authorities.add((await ours.ensure()).ca_cert)
        assert not [name for name in api.objects[PATH]["data"] if "ca-key" in name]
        ours.published(complete=True)
        await clock.sleep(STEP_SECONDS)
    assert len(authorities) == 2
    assert fault_of(await ours.ensure(), (HOST,), clock.now(), RENEW) == ""


@pytest.mark.behaviour("MGR-147", "MGR-34")
@virtual
async def test_an_openkruise_signing_key_signs_once_and_is_dropped() -> None:
    old = issue((HOST,), VirtualClock().now())
    short = issue(("elsewhere",), VirtualClock().now(), reuse_ca_of=old)
    api = MemoryApi(objects={PATH: secret(short.secret_data())})
    made = await source(api).ensure()
    assert made.ca_cert == old.ca_cert
    assert "ca-key.pem" not in api.objects[PATH]["data"]


@pytest.mark.behaviour("MGR-32")
@pytest.mark.parametrize(("method", "reason"), [("POST", "AlreadyExists"), ("PUT", "Conflict")])
@virtual
async def test_the_certificate_of_the_replica_that_writes_first_is_used(method: str, reason: str) -> None:
    """It creates or repairs the Secret between our read and our write."""
    api = MemoryApi(objects={PATH: secret(None)} if method == "PUT" else {})
    other = issue((HOST,), VirtualClock().now())

    def first_wins(request: Request) -> Response | None:
        if request.method != method:
            return None
        if method == "PUT":
            assert orjson.loads(request.body or b"")["metadata"]["resourceVersion"] == "1"
        api.fail = lambda _: None
        api.objects[PATH] = secret(other.secret_data())
        return json_response(409, status_body(409, reason))

    api.fail = first_wins
    assert await source(api).ensure() == other


@pytest.mark.behaviour("MGR-33")
@pytest.mark.parametrize("content", ["nothing", "garbage", "not base64", "half", "other pair", "other host"])
@virtual
async def test_a_broken_secret_is_recreated(content: str) -> None:
    now = VirtualClock().now()
    good, other = issue((HOST,), now), issue(("elsewhere",), now)
    data: dict[str, dict[str, str] | None] = {
        "nothing": None,  # as created by the chart
        "garbage": dict.fromkeys(good.secret_data(), base64.b64encode(b"garbage").decode()),
        "not base64": dict.fromkeys(good.secret_data(), "%"),
        "half": {"tls.crt": good.secret_data()["tls.crt"]},
        "other pair": {**good.secret_data(), **dict.fromkeys(("tls.key", "key.pem"), other.secret_data()["tls.key"])},
        "other host": {**other.secret_data(), "theirs": "eA=="},
    }
    api = MemoryApi(objects={PATH: {**secret(data[content]), "type": "Opaque"}})
    made = await source(api).ensure()
    assert stored(api) == made
    assert fault_of(made, (HOST,), now, RENEW) == ""
    assert api.objects[PATH]["type"] == "Opaque"
    if content == "other host":
        assert api.objects[PATH]["data"]["theirs"] == "eA=="
        # MGR-34: replicas and configurations that trust the old CA continue to do so.
        assert made.ca_cert == other.ca_cert


@pytest.mark.behaviour("MGR-33")
@virtual
async def test_a_certificate_is_renewed_before_expiry() -> None:
    api = MemoryApi()
    made = await source(api).ensure()
    ends = VirtualClock().now() + timedelta(days=3650)
    assert await source(api, VirtualClock(ends - RENEW - timedelta(days=1))).ensure() == made
    clock = VirtualClock(ends - RENEW - timedelta(days=1))
    later, other = source(api, clock), source(api, clock)
    for replica in (later, other):
        assert await replica.ensure() == made
        replica.published(complete=True)
    await clock.sleep(86400)
    assert await later.ensure() == made
    assert await other.ensure() == made
    # An announced certificate must be trusted everywhere before it is served.
    assert made.ca_cert in later.bundle
    assert later.bundle != made.ca_cert
    later.published(complete=True)
    assert later.next_step_in == STEP_SECONDS
    await clock.sleep(STEP_SECONDS / 2)
    later.published(complete=False)  # a registration was reverted, so the step starts over
    for _ in range(2):  # each check finds the bundle in place
        assert await later.ensure() == made
        later.published(complete=True)
        await clock.sleep(STEP_SECONDS / 2)
    renewed = await later.ensure()
    assert renewed.cert != made.cert
    assert later.bundle == renewed.ca_cert + made.ca_cert
    later.published(complete=True)
    await clock.sleep(STEP_SECONDS)
    assert await later.ensure() == renewed
    assert later.bundle == renewed.ca_cert
    assert later.next_step_in is None


@virtual
async def test_endless_conflicts_over_the_secret_end_in_an_error() -> None:
    api = MemoryApi(objects={PATH: secret(None)})
    api.fail = lambda r: json_response(409, status_body(409, "Conflict")) if r.method == "PUT" else None
    ours, conflicts = source(api), "5 write conflicts in a row; is another program writing to it"
    for message in (conflicts, conflicts, "our writes are being reverted: ca-cert.pem: is missing"):
        with pytest.raises(KubeError, match=message):
            await ours.ensure()


@virtual
async def test_two_programs_that_revert_each_other_do_not_load_the_api_server() -> None:
    api = MemoryApi()
    ours = source(api)
    made = await ours.ensure()
    for _ in range(100):
        api.objects[PATH] = secret(None)
        assert await ours.ensure() == made
    assert len([request for request in api.requests if request.method == "PUT"]) < 10


@virtual
async def test_a_missing_namespace_is_reported_with_a_hint() -> None:
    api = MemoryApi()
    api.fail = lambda r: json_response(404, status_body(404, "NotFound")) if r.method == "POST" else None
    with pytest.raises(KubeError, match="namespace kruise-system does not exist: kubectl create namespace"):
        await source(api).ensure()


@pytest.mark.behaviour("MGR-146")
@virtual
async def test_a_reader_follows_a_rotation_without_writing() -> None:
    clock = VirtualClock()
    api = MemoryApi()
    reader = reading(api, clock)
    with pytest.raises(CertificateError, match=r"kruise-system/kruise-webhook-certs: .* is missing; it is written by"):
        await reader.ensure()
    assert not api.objects
    first = await source(api, clock).ensure()
    assert await reader.ensure() == first
    # An announced CA is trusted everywhere when the Secret switches to it, so there is no need to wait.
    later = VirtualClock(clock.now() + timedelta(days=3650) - RENEW)
    writer = source(api, later)
    await writer.ensure()
    assert (await reader.ensure(), len(blocks(reader.bundle))) == (first, 2)
    writer.published(complete=True)
    await later.sleep(STEP_SECONDS)
    second = await writer.ensure()
    assert second != first
    assert await reader.ensure() == second


@pytest.mark.behaviour("MGR-146")
@pytest.mark.parametrize("damaged", [None, {}, {"tls.crt": "%"}], ids=["deleted", "emptied", "garbage"])
@virtual
async def test_a_reader_keeps_serving_while_the_secret_is_broken(damaged: dict[str, str] | None) -> None:
    clock = VirtualClock()
    api = MemoryApi()
    await source(api, clock).ensure()
    reader = reading(api, clock)
    first = await reader.ensure()

    def damage() -> None:
        api.objects.pop(PATH)
        if damaged is not None:
            api.objects[PATH] = secret(damaged)

    damage()
    assert await reader.ensure() == first
    second = issue((HOST,), clock.now()).without_ca_key
    api.objects[PATH] = secret(second.secret_data())
    assert await reader.ensure() == first
    assert reader.next_step_in is not None
    await clock.sleep(reader.next_step_in)
    assert await reader.ensure() == second
    # If the Secret is damaged again while the next set waits, it must not be read in a tight loop.
    api.objects[PATH] = secret(issue((HOST,), clock.now()).without_ca_key.secret_data())
    assert await reader.ensure() == second
    damage()
    assert await reader.ensure() == second
    assert reader.next_step_in is None


@pytest.mark.behaviour("MGR-146")
@virtual
async def test_a_secret_replaced_twice_is_not_served_before_the_api_server_trusts_it() -> None:
    clock = VirtualClock()
    api = MemoryApi()
    await source(api, clock).ensure()
    reader = reading(api, clock)
    first = await reader.ensure()
    # The new CAs were not announced, so the controllers publish them first.
    for _ in range(2):
        latest = issue((HOST,), clock.now()).without_ca_key
        api.objects[PATH] = secret(latest.secret_data())
        assert await reader.ensure() == first
        await clock.sleep(9)
        assert await reader.ensure() == first
    await clock.sleep(1)
    assert await reader.ensure() == latest
    assert reader.next_step_in is None
