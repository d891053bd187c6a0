"""Delete Pods concurrently under a PodUnavailableBudget: ``python -m bench.budget [--pods 500] [--clients 16]``.

Concurrent clients delete the ready Pods of a budget of 10% on a real API server, each Pod once. Two replicas behind a
load balancer review the deletions. Prints how many deletions are allowed (exactly a tenth must be) and how long each
takes, and the cost of a review of a Pod without a budget.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles
from timeit import repeat
from typing import Any

from app.admission.pod_webhooks import PodGuards
from app.features.podunavailablebudget.budgets import Budgets
from app.features.podunavailablebudget.index import Claims, DirectOwners
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.pod_admission import BudgetGuard, BudgetStep
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.kube.admission import GroupVersionKind, GroupVersionResource, Operation, Review
from app.kube.client import Client, PatchType
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.errors import ApiError
from app.kube.resources import PODS
from app.kube.statuses import LocalStatuses
from app.kube.store import Store
from app.kube.transport import AiohttpTransport
from app.pods.admission_draft import PodDraft
from bench.priority import take_precedence
from bench.replica import READY_SECONDS
from tests.cluster.controlplane import ControlPlane, free_port
from tests.scenarios.world import SYSTEM_NAMESPACE, eventually, install, running

BUDGETS = POD_UNAVAILABLE_BUDGET.resource()
BALANCER, REPLICAS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
SHARE = 10
#: Autogroup niceness; see bench/priority.py.
PRECEDENCE = int(os.environ.get("BENCH_NICE", "0"))
REPEATS, CALLS = 15, 20_000


@contextmanager
def replicas(control_plane: ControlPlane, folder: Path, port: int) -> Iterator[None]:
    """Run two ready managers that API servers reach through the balancer's address."""
    kubeconfig = install(control_plane)
    with ExitStack() as stack:
        for number, address in enumerate(REPLICAS):
            health, metrics = free_port(BALANCER), free_port(BALANCER)
            log = folder / f"manager-{number}.log"
            arguments = [
                *("app.cli.main", "manager", f"--kubeconfig={kubeconfig}", "--enable-leader-election"),
                *(f"--webhook-host={BALANCER}", f"--webhook-port={port}", f"--webhook-bind-address={address}"),
                *(f"--health-probe-addr={BALANCER}:{health}", f"--metrics-addr={BALANCER}:{metrics}"),
                *(f"--protection-log-path={folder}",),
            ]
            stack.enter_context(running(arguments, log, POD_NAMESPACE=SYSTEM_NAMESPACE))
            ready = ["curl", "-sf", f"http://{BALANCER}:{health}/readyz"]
            eventually(
                lambda ready=ready: os.spawnlp(os.P_WAIT, "curl", *ready, "-o", os.devnull) == 0,  # type: ignore[misc]
                f"the manager is ready; its log is {log}",
                READY_SECONDS,
            )
        yield


async def balance(port: int) -> asyncio.Server:
    """Start a balancer that forwards connections to the replicas in turn."""
    turn = cycle(REPLICAS)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(next(turn), port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, back), copy(there, writer))

    return await asyncio.start_server(serve, BALANCER, port)


async def measure(kubeconfig: Path, pods: int, clients: int) -> None:
    """Delete the Pods and print the table row."""
    transport = AiohttpTransport(await load_config(str(kubeconfig)))
    client = Client(transport, SystemClock())
    budget = {
        "apiVersion": BUDGETS.api_version,
        "kind": BUDGETS.kind,
        "metadata": {"name": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "shop"}},
            "maxUnavailable": f"{SHARE}%",
            "protectTotalReplicas": pods,
        },
    }
    await client.create(BUDGETS, budget, "default")
    limit = asyncio.Semaphore(clients)

    async def make(number: int) -> None:
        name = f"shop-{number}"
        async with limit:
            spec = {"containers": [{"name": "main", "image": "nginx:1.27"}], "terminationGracePeriodSeconds": 0}
            await client.create(PODS, {"metadata": {"name": name, "labels": {"app": "shop"}}, "spec": spec}, "default")
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await client.patch(
                PODS, name, {"status": status}, "default", kind=PatchType.STRATEGIC, subresource="status"
            )

    await asyncio.gather(*map(make, range(pods)))
    numbers: dict[str, Any] = {}
    while numbers.get("currentAvailable") != pods:
        await asyncio.sleep(0.1)
        numbers = (await client.get(BUDGETS, "shop", "default")).get("status") or {}
    allowed = numbers["unavailableAllowed"]
    names = iter(range(pods))
    granted: list[float] = []
    refused: list[float] = []
    others: list[float] = []

    async def attack() -> None:
        own = AiohttpTransport(await load_config(str(kubeconfig)))
        deleting = Client(own, SystemClock())
        for number in names:
            began = time.perf_counter()
            try:
                await deleting.delete(PODS, f"shop-{number}", "default")
                told = granted
            except ApiError as error:
                told = refused if error.code == 403 else others
            told.append(1000 * (time.perf_counter() - began))
        await own.close()

    began = time.perf_counter()
    await asyncio.gather(*(attack() for _ in range(clients)))
    seconds = time.perf_counter() - began
    waits = [*granted, *refused, *others]
    cuts = quantiles(waits, n=100)
    print(
        f"| {pods} | {clients} | {allowed} | {len(granted)} | {len(refused)} | {len(others)} | {pods / seconds:.0f} |"
        f" {cuts[49]:.0f} | {cuts[98]:.0f} | {max(waits):.0f} | {median(granted):.0f} | {median(refused):.0f} |",
        flush=True,
    )
    await transport.close()


def unconcerned() -> None:
    """Print what the creation step and the deletion guard cost for a Pod without a budget."""

    def budgets(number: int) -> Store[PodUnavailableBudget]:
        store: Store[PodUnavailableBudget] = Store()
        made = [
            {
                "metadata": {"name": f"b{index}", "namespace": "shop", "uid": f"u{index}", "resourceVersion": "1"},
                "spec": {"selector": {"matchLabels": {"app": f"app-{index}"}}, "maxUnavailable": 1},
            }
            for index in range(number)
        ]
        store.replace([PodUnavailableBudget.model_validate(one) for one in made])
        return store

    pod = {"metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}, "spec": {"containers": []}}
    review = Review(
        uid="u",
        operation=Operation.DELETE,
        kind=GroupVersionKind("", "v1", "Pod"),
        resource=GroupVersionResource("", "v1", "pods"),
        name="web",
        namespace="shop",
        old_object=pod,
    )

    async def fetch(_namespace: str, _name: str) -> None:
        return None

    async def any_budget(_namespace: str) -> bool:
        return True

    for number in (0, 1, 10, 100):
        store = budgets(number)
        claims = Claims(store)
        keeper = Budgets(LocalStatuses(store), SystemClock(), resize_is_update=True, vertical_scaling=False)
        guard = BudgetGuard(keeper, any_budget, lambda _pod, _user: None, removals=True, updates=True)
        step = BudgetStep(claims, DirectOwners())
        draft = PodDraft(pod, "shop")

        def judge(guards: PodGuards) -> None:
            waiting = guards(review)
            try:
                waiting.send(None)
            except StopIteration:
                return

        def cost(work: Any) -> float:
            return median(repeat(work, number=CALLS, repeat=REPEATS)) / CALLS * 1e6

        bare = cost(lambda: judge(PodGuards((), fetch)))
        guarded = cost(lambda guard=guard: judge(PodGuards((guard,), fetch)))
        created = cost(lambda step=step, draft=draft: step(draft, review))
        print(f"| {number} | {created:.2f} | {guarded - bare:.2f} |", flush=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    print("| budgets in the namespace | step of a creation µs | guard of a deletion µs |\n|---|---|---|", flush=True)
    unconcerned()
    arguments = ["--controllers=serviceaccount-controller,serviceaccount-token-controller,namespace-controller"]
    with ControlPlane(controller_manager_args=arguments) as control_plane, tempfile.TemporaryDirectory() as folder:
        take_precedence(PRECEDENCE, (process.pid for process in control_plane.run.processes.values()))
        port = free_port(BALANCER)

        async def run() -> None:
            server = await balance(port)
            loop = asyncio.get_running_loop()
            stack = ExitStack()
            await loop.run_in_executor(None, stack.enter_context, replicas(control_plane, Path(folder), port))
            try:
                print(
                    "\n| Pods | clients | allowed | granted | refused | others | requests/s | p50 ms | p99 ms |"
                    " slowest ms | granted p50 | refused p50 |\n|---|---|---|---|---|---|---|---|---|---|---|---|",
                    flush=True,
                )
                await measure(control_plane.kubeconfig, options.pods, options.clients)
            finally:
                await loop.run_in_executor(None, stack.close)
                server.close()

        asyncio.run(run())


if __name__ == "__main__":
    main()
