"""Replicas of the manager on virtual time: how they start, hand over, and survive the end of one of their processes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from app.admission.configurations import CONFIGURATIONS
from app.certs.issue import issue
from app.certs.tls import ServingContext
from app.kube.client import get_or_none
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, MUTATINGWEBHOOKCONFIGURATIONS, SECRETS, Resource
from app.manager.health import Readiness
from app.manager.shared_state import Certificate
from tests.kit.cluster import scenarios
from tests.kit.virtualtime import EPOCH
from tests.kube.fakes import running, until
from tests.managed import define, replica_of
from tests.sandbox.cluster import Simulated, simulated
from tests.simulation.replicas import RECONCILER, WEBHOOK


@asynccontextmanager
async def defined() -> AsyncIterator[Simulated]:
    """A cluster with our definitions."""
    async with simulated(1) as there:
        await define(there)
        yield there


in_defined = scenarios(defined)


@pytest.mark.behaviour("MGR-2", "MGR-20", "MGR-24")
@in_defined
async def test_a_replica_stays_ready_while_its_reconciler_restarts(there: Simulated) -> None:
    one = replica_of(there, "one")
    answered: list[bool] = []

    def written(_verb: str, resource: Resource, *_: Any) -> None:
        if resource == MUTATINGWEBHOOKCONFIGURATIONS:
            answered.append(one.answers)

    there.api.on_write(written)
    readiness = Readiness(one.shared, WEBHOOK, (WEBHOOK,), RECONCILER)
    async with running(one.run()):
        await until(lambda: one.leads)
        assert answered[0]  # only then are the webhooks registered
        assert await readiness.fault() == ""
        await until(lambda: any(" Pods " in line for line in one.reconciler.part.debug_pages()["caches"]))

        async def told() -> bool:
            messages = [event["message"] for event in (await there.client.list(EVENTS)).items]
            return f"{one.reconciler.identity} became leader" in messages

        await there.until(told)
        one.webhook.part._only_strangers(True)
        assert any(line.startswith("[-]callers: ") for line in readiness.lines())
        killed, states, registered = one.reconciler.process, one.shared.states[RECONCILER], list[bool]()
        write = states.write
        states.write = lambda state: (registered.append(state.registered), write(state))
        one.reconciler.kill("at rest")
        await until(lambda: one.reconciler.process is not killed and one.leads)
        assert all(registered)  # what its predecessor had established remains
        assert await readiness.fault() == ""
        one.webhook.stop()
        await until(lambda: one.shared.state(WEBHOOK).stopping)
        assert await readiness.fault() == "shutting down"


@pytest.mark.behaviour("MGR-36", "MGR-37")
@in_defined
async def test_deleted_and_changed_registrations_are_restored_at_once(there: Simulated) -> None:
    client, one = there.client, replica_of(there, "one")
    secret = (SECRETS, "kruise-webhook-certs", "kruise-system")
    async with running(one.run()):
        await until(lambda: one.leads)
        for resource, name, *namespace in (*CONFIGURATIONS, secret):
            await client.delete(resource, name, *namespace)
            await there.until(partial(get_or_none, client, resource, name, *namespace), 2)
        name, foreign = "clonesets.apps.kruise.io", {"webhook": {"clientConfig": {"caBundle": "eA=="}}}
        await client.patch(CUSTOMRESOURCEDEFINITIONS, name, {"spec": {"conversion": foreign}})

        async def ours_again() -> bool:
            return "eA==" not in str(await client.get(CUSTOMRESOURCEDEFINITIONS, name))

        await there.until(ours_again, 2)


@pytest.mark.behaviour("MGR-22", "MGR-124")
@in_defined
async def test_a_candidate_leads_as_soon_as_the_leader_stops(there: Simulated) -> None:
    first, second = replica_of(there, "first"), replica_of(there, "second")
    async with running(first.run(), second.run()):
        await until(lambda: first.leads or second.leads)
        leader, other = (first, second) if first.leads else (second, first)
        await until(lambda: other.shared.state(RECONCILER).leader == leader.reconciler.identity)
        assert not other.leads
        leader.reconciler.stop()
        await until(lambda: other.leads, seconds=2)
        registry = other.reconciler.process.metrics.registry
        assert registry.get_sample_value("kruise_manager_is_leader") == 1


@pytest.mark.behaviour("MGR-36")
@in_defined
async def test_listeners_never_serve_an_invalid_certificate(
    there: Simulated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, newer = replica_of(there, "one"), issue(("localhost",), EPOCH)
    async with running(one.webhook.run()):
        one.shared.certificate.write(Certificate(newer.cert, newer.key, newer.ca_cert))
        await until(lambda: one.webhook.part is not None and one.webhook.part._context is not None)
        one.shared.certificate.write(Certificate(b"invalid", newer.key, newer.ca_cert))
        await until(lambda: "new certificate rejected: serving certificate: is not a PEM certificate" in caplog.text)
        context = one.webhook.part._context
        assert context.serves(newer.cert, newer.key)
        newest, replace, failures = issue(("localhost",), EPOCH), ServingContext.replace, [OSError("no descriptors")]

        def replaced(*pair: Any) -> None:
            if failures:
                raise failures.pop()
            replace(*pair)

        monkeypatch.setattr(ServingContext, "replace", replaced)
        one.shared.certificate.write(Certificate(newest.cert, newest.key, newest.ca_cert))
        await until(lambda: context.serves(newest.cert, newest.key))
        assert "new certificate not served yet: no descriptors" in caplog.text
        assert context.reloads == 1
