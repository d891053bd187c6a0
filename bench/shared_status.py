"""Measure many writers of one counter: ``python -m bench.shared_status [--requests 400] [--clients 16]``.

Several replicas share a budget on a private API server. Each client sends requests to a replica one by one, and each
granted request uses one unit of the budget. Prints the latency and the number of writes, with one write per request and
with one write for all waiting requests.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from random import Random
from statistics import quantiles

from app.api.crd import manifest
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.reflector import Reflector
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, ObjectKey
from app.kube.rulings import Decision, Ruling
from app.kube.statuses import SharedStatus
from app.kube.store import Store
from app.kube.transport import AiohttpTransport
from tests.cluster.controlplane import ControlPlane

BUDGETS = POD_UNAVAILABLE_BUDGET.resource()
NUMBERS = {"currentAvailable": 0, "desiredAvailable": 0, "totalReplicas": 0}


def take(name: str) -> Decision[PodUnavailableBudget, bool]:
    """Return a decision that grants a request if the budget allows it, and records the name."""

    def decision(budget: PodUnavailableBudget | None) -> Ruling[PodUnavailableBudget, bool]:
        if budget is None or budget.status is None or budget.status.unavailable_allowed <= 0:
            return Ruling(False, provisional=True)
        noted = {**(budget.status.disrupted_pods or {}), name: "2026-01-01T00:00:00Z"}
        update = {"unavailable_allowed": budget.status.unavailable_allowed - 1, "disrupted_pods": noted}
        return Ruling(True, budget.model_copy(update={"status": budget.status.model_copy(update=update)}))

    return decision


async def measure(kubeconfig: Path, *, replicas: int, clients: int, requests: int, together: int) -> None:
    """Print one row of the table."""
    config = await load_config(str(kubeconfig))
    transports = [AiohttpTransport(config) for _ in range(replicas)]
    made = [Client(transport, SystemClock()) for transport in transports]
    name = f"b{replicas}-{together}"
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "maxUnavailable": 1}}
    created = await made[0].create(
        BUDGETS, {"apiVersion": BUDGETS.api_version, "kind": BUDGETS.kind, **body}, "default"
    )
    created["status"] = {**NUMBERS, "unavailableAllowed": requests // 2}
    await made[0].replace(BUDGETS, name, created, "default", subresource="status")
    watched: list[asyncio.Task[None]] = []
    statuses = []
    for index, client in enumerate(made):
        store: Store[PodUnavailableBudget] = Store()
        reflector = Reflector(
            client, BUDGETS, store, decode=PodUnavailableBudget.model_validate_json, rng=Random(index)
        )
        watched.append(asyncio.create_task(reflector.run()))
        await store.wait_until_ready()
        statuses.append(
            SharedStatus(
                client,
                BUDGETS,
                store.by_key,
                Random(index),
                decode=PodUnavailableBudget.model_validate_json,
                status_of=lambda budget: budget.status.to_dict() if budget.status is not None else {},
                together=together,
            )
        )
    key, waits, granted, failed = ObjectKey("default", name), [], 0, 0
    names = iter(range(requests))

    async def client_of(index: int) -> None:
        nonlocal granted, failed
        for number in names:
            began = time.perf_counter()
            try:
                given = await statuses[index % replicas].decide(key, take(f"pod-{number}"))
                granted += given
            except Exception:  # noqa: BLE001  # counted
                failed += 1
            waits.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*map(client_of, range(clients)))
    seconds = time.perf_counter() - began
    for task in watched:
        task.cancel()
    await asyncio.gather(*watched, return_exceptions=True)
    for transport in transports:
        await transport.close()
    cuts = [1000 * cut for cut in quantiles(waits, n=100)]
    counts = [status.counts for status in statuses]
    writes, conflicts = sum(count.writes for count in counts), sum(count.conflicts for count in counts)
    print(
        f"| {replicas} | {'one' if together == 1 else 'all that wait'} | {requests / seconds:.0f} | {cuts[49]:.1f} |"
        f" {cuts[98]:.1f} | {1000 * max(waits):.1f} | {writes} | {conflicts} | {granted} | {failed} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    with ControlPlane(controller_manager=False) as control_plane:

        async def run() -> None:
            transport = AiohttpTransport(await load_config(str(control_plane.kubeconfig)))
            client = Client(transport, SystemClock())
            body = manifest(POD_UNAVAILABLE_BUDGET)
            body["spec"]["conversion"] = {"strategy": "None"}
            await client.create(CUSTOMRESOURCEDEFINITIONS, body)
            while True:
                found = await client.get(CUSTOMRESOURCEDEFINITIONS, POD_UNAVAILABLE_BUDGET.crd_name)
                if {"type": "Established", "status": "True"}.items() <= _condition(found).items():
                    break
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.0)
            await transport.close()
            print(
                f"{options.clients} clients, {options.requests} requests, half of them allowed\n\n"
                "| replicas | a write serves | requests/s | p50 ms | p99 ms | slowest ms | writes | conflicts |"
                " granted | given up |\n|---|---|---|---|---|---|---|---|---|---|"
            )
            for replicas in (1, 2, 4, 8):
                for together in (1, 500):
                    await measure(
                        control_plane.kubeconfig,
                        replicas=replicas,
                        clients=options.clients,
                        requests=options.requests,
                        together=together,
                    )

        asyncio.run(run())


def _condition(definition: dict[str, object]) -> dict[str, str]:
    status = definition.get("status") or {}
    conditions = status.get("conditions") or [] if isinstance(status, dict) else []
    return next((condition for condition in conditions if condition["type"] == "Established"), {})


if __name__ == "__main__":
    main()
