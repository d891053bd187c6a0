"""Users: every actor that changes the cluster besides the manager, driven by the script."""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, cast

from app.api import names
from app.certs.issue import LIFETIME, CertificateSet, issue
from app.kube.client import Client, PatchType
from app.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from app.kube.resources import MUTATINGWEBHOOKCONFIGURATIONS, PODS, SECRETS, VALIDATINGWEBHOOKCONFIGURATIONS, Resource
from app.manager.settings import SECRET_NAME
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import UNREADY
from tests.kit.virtualtime import EPOCH
from tests.simulation.clocks import WallClock
from tests.simulation.history import History
from tests.simulation.pods import is_active
from tests.simulation.replicas import SimulatedReplica
from tests.simulation.script import NAMESPACE, Action

Json = dict[str, Any]

SYSTEM = "kruise-system"
#: The label of a workload's Pods; its value is the workload's name.
LABEL = "clone"
CONFIGURATIONS = {"mutating": MUTATINGWEBHOOKCONFIGURATIONS, "validating": VALIDATINGWEBHOOKCONFIGURATIONS}
CONFIGURATION_NAMES = {
    "mutating": "kruise-mutating-webhook-configuration",
    "validating": "kruise-validating-webhook-configuration",
}
#: How long to wait for the creation that is cut off, in seconds.
SUSPENSE_SECONDS = 4.0


#: Actions that break TLS handshakes until the managers repair the damage.
CERTIFICATE_SABOTAGE = frozenset({"delete secret", "garble secret", "empty bundle", "delete configuration"})


@dataclass(frozen=True, slots=True)
class UserAction:
    """An action of :class:`Users`. ``seconds``: how soon it must be handled while there are no faults."""

    do: Callable[..., Coroutine[Any, Any, None]]
    seconds: float = 60.0


class Users:
    """Executes the script. ``replicas``: those that may be killed; ``user_actions``: further actions of this run."""

    def __init__(
        self,
        api: ApiServer,
        client: Client,
        history: History,
        replicas: list[SimulatedReplica],
        rng: Random,
        user_actions: Mapping[str, UserAction],
    ) -> None:
        self.api = api
        self.admin = client
        self.clock = client.clock
        self.history = history
        self.replicas = replicas
        self._rng = rng
        self._user_actions = {**_USER_ACTIONS, **user_actions}
        #: Whether a user broke TLS handshakes.
        self.sabotaged = False
        #: Time until which the managers cannot reach the API server.
        self.cut_off_until = 0.0
        #: Time until which a fault is frequent, by fault, and until which a watch is frozen, by resource.
        self.squalls: dict[str, float] = {}
        self.frozen: dict[str, float] = {}
        #: The workload whose next created Pod cuts the managers off, and for how many seconds.
        self._cut_off_with: tuple[str, float] | None = None
        #: CAs that users put into the Secret, in PEM.
        self.given_authority = b""
        api.on_write(self._wrote)

    def seconds_for(self, what: str) -> float:
        """Return the seconds within which an action must be handled while there are no faults."""
        return self._user_actions[what].seconds

    async def do(self, action: Action) -> None:
        """Execute an action, and retry temporary refusals."""
        self.history.say(f"{self.clock.monotonic():10.3f} -- {action.what} {action.arguments}")
        self.sabotaged |= action.what in CERTIFICATE_SABOTAGE
        for _ in range(200):
            try:
                await self._user_actions[action.what].do(self, **action.arguments)
            except ApiError as refusal:
                if refusal.code < 500 and not isinstance(refusal, Conflict | TooManyRequests):
                    self.history.say(f"           -- {action.what}: {refusal.message[:200]}")
                    return
                await self.clock.sleep(3.0)
            else:
                return

    async def _create_pod(self, name: str, app: str, ordered: bool) -> None:
        await self.admin.create(PODS, pod(name, app, ordered=ordered), NAMESPACE)

    async def _delete_pod(self, name: str) -> None:
        await self.admin.delete(PODS, name, NAMESPACE, grace_period_seconds=1)

    async def _relabel_pod(self, name: str, app: str) -> None:
        await self.admin.patch(PODS, name, {"metadata": {"labels": {"app": app}}}, NAMESPACE)

    def pods_of(self, name: str, *, serving: bool = False) -> list[str]:
        """Return the names of a workload's Pods (``serving``: only active ones)."""
        pods = [pod for pod in self.api.objects(PODS) if (pod["metadata"].get("labels") or {}).get(LABEL) == name]
        return [pod["metadata"]["name"] for pod in pods if is_active(pod) or not serving]

    def _pod_of(self, name: str, number: int) -> str | None:
        pods = self.pods_of(name)
        return pods[number % len(pods)] if pods else None

    async def _lose_pod(self, name: str, number: int, seconds: int) -> None:
        if chosen := self._pod_of(name, number):
            await self.admin.delete(PODS, chosen, NAMESPACE, grace_period_seconds=seconds)

    async def _break_pod(self, name: str, number: int, seconds: float) -> None:
        chosen = self._pod_of(name, number)
        if chosen is None:
            return
        with suppress(NotFound):
            await self._annotate(chosen, {UNREADY: "main"})
            await self.clock.sleep(seconds)
            await self._annotate(chosen, {UNREADY: None})

    async def _annotate(self, pod_name: str, annotations: Json) -> None:
        await self.admin.patch(PODS, pod_name, {"metadata": {"annotations": annotations}}, NAMESPACE)

    async def _evict_pod(self, name: str, number: int, seconds: float) -> None:
        """Let a node evict a Pod: the Pod fails and is deleted later."""
        chosen = self._pod_of(name, number)
        if chosen is None:
            return
        with suppress(NotFound):
            status = {"phase": "Failed", "reason": "Evicted", "message": "simulated"}
            await self.admin.patch(PODS, chosen, {"status": status}, NAMESPACE, subresource="status")
            await self.clock.sleep(seconds)
            await self.admin.delete(PODS, chosen, NAMESPACE, grace_period_seconds=0)

    async def _drain_pod(self, name: str, number: int) -> None:
        """Request the eviction of a Pod, which may be refused."""
        if chosen := self._pod_of(name, number):
            with suppress(TooManyRequests):
                eviction = {"metadata": {"name": chosen}, "deleteOptions": {"gracePeriodSeconds": 1}}
                await self.admin.create(PODS, eviction, NAMESPACE, name=chosen, subresource="eviction")

    async def _squall(self, fault: str, seconds: float) -> None:
        self.squalls[fault] = self.clock.monotonic() + seconds

    async def _freeze_watches(self, resource: str, seconds: float) -> None:
        # A shorter freeze does not end a longer one.
        self.frozen[resource] = max(self.frozen.get(resource, 0.0), self.clock.monotonic() + seconds)

    async def mark_pods(self, name: str, number: int, *, serving: bool = False) -> None:
        """Mark some Pods for replacement (``serving``: only active ones)."""
        pods = self.pods_of(name, serving=serving)
        for chosen in pods if number == 2 else pods[number::2]:
            body = {"metadata": {"labels": {names.SPECIFIED_DELETE: "true"}}}
            with suppress(NotFound):
                await self.admin.patch(PODS, chosen, body, NAMESPACE)

    async def _kill(self, replica: int, process: str) -> None:
        chosen = self.replicas[replica]
        (chosen.webhook if process == chosen.webhook.name else chosen.reconciler).kill("by the script")

    async def _forget_history(self) -> None:
        """Restart the API server: every watch ends, and its resourceVersions expire."""
        self.api.end_watches()
        self.api.compact()

    async def _stop(self, replica: int, process: str) -> None:
        chosen = self.replicas[replica]
        (chosen.webhook if process == chosen.webhook.name else chosen.reconciler).stop()

    async def _stop_leader(self, gently: bool) -> None:
        for replica in self.replicas:
            if replica.leads and gently:
                replica.reconciler.stop()
            elif replica.leads:
                replica.reconciler.kill("by the script")

    async def _cut_off(self, seconds: float, lost: int) -> None:
        """Cut the managers off while the cluster changes, too briefly for a Lease to expire."""
        self.cut_off_until = self.clock.monotonic() + seconds
        self.api.end_watches()
        await self.clock.sleep(0.5)
        pods = [pod["metadata"] for pod in self.api.objects(PODS) if pod["metadata"].get("namespace") == NAMESPACE]
        for metadata in pods[lost % 3 :: 3]:
            with suppress(ApiError):  # the webhooks may be cut off, too
                await self.admin.delete(PODS, metadata["name"], NAMESPACE, grace_period_seconds=lost % 2)
        await self.clock.sleep(self.cut_off_until - self.clock.monotonic())
        self.api.compact()

    async def _cut_off_at_creation(self, name: str, seconds: float) -> None:
        """Cut the managers off just after their next creation, so that its answer is lost."""
        self._cut_off_with = (name, seconds)
        await self.clock.sleep(SUSPENSE_SECONDS)
        self._cut_off_with = None

    async def _blind_creation(self, name: str, seconds: float, resource: str = "pods") -> None:
        """Withhold both the answers and the watch events of the managers' next creations for a while."""
        await self._freeze_watches(resource, SUSPENSE_SECONDS + seconds + 4.0)
        await self._cut_off_at_creation(name, seconds)

    def _wrote(self, verb: str, resource: Resource, _before: Json | None, after: Json | None) -> None:
        if self._cut_off_with is None or verb != "create" or after is None:
            return
        name, seconds = self._cut_off_with
        if (after["metadata"].get("labels") or {}).get(LABEL) == name:
            self.cut_off_until, self._cut_off_with = self.clock.monotonic() + seconds, None

    async def _set_clock(self, seconds: float) -> None:
        cast("WallClock", self.clock).ahead += seconds

    async def _end_certificates(self) -> None:
        ending = _ending_certificates(self._rng.randrange(3))
        self.given_authority += ending.ca_cert
        await self._put_secret(ending.secret_data())

    async def _put_secret(self, data: Mapping[str, str]) -> None:
        patch = [{"op": "add", "path": "/data", "value": dict(data)}]
        await self.admin.patch(SECRETS, SECRET_NAME, patch, SYSTEM, kind=PatchType.JSON)

    async def _delete_secret(self) -> None:
        await self.admin.delete(SECRETS, SECRET_NAME, SYSTEM)

    async def _garble_secret(self) -> None:
        await self._put_secret({"tls.crt": base64.b64encode(b"garbage").decode()})

    async def _empty_bundle(self, kind: str) -> None:
        resource, name = CONFIGURATIONS[kind], CONFIGURATION_NAMES[kind]
        live = await self.admin.get(resource, name)
        for entry in live["webhooks"]:
            entry["clientConfig"].pop("caBundle", None)
        await self.admin.replace(resource, name, live)

    async def _delete_configuration(self, kind: str) -> None:
        await self.admin.delete(CONFIGURATIONS[kind], CONFIGURATION_NAMES[kind])


_USER_ACTIONS: Mapping[str, UserAction] = {
    "create pod": UserAction(Users._create_pod, 20.0),
    "delete pod": UserAction(Users._delete_pod, 20.0),
    "relabel pod": UserAction(Users._relabel_pod),
    "lose pod": UserAction(Users._lose_pod, 100.0),
    "break pod": UserAction(Users._break_pod),
    "evict pod": UserAction(Users._evict_pod),
    "drain pod": UserAction(Users._drain_pod),
    "squall": UserAction(Users._squall),
    "freeze watches": UserAction(Users._freeze_watches, 30.0),
    "mark pods": UserAction(Users.mark_pods, 600.0),
    "kill": UserAction(Users._kill),
    "stop": UserAction(Users._stop),
    "stop leader": UserAction(Users._stop_leader),
    "cut off": UserAction(Users._cut_off),
    "cut off at creation": UserAction(Users._cut_off_at_creation),
    "blind creation": UserAction(Users._blind_creation),
    "forget history": UserAction(Users._forget_history),
    "set clock": UserAction(Users._set_clock),
    "end certificates": UserAction(Users._end_certificates, 900.0),
    "delete secret": UserAction(Users._delete_secret),
    "garble secret": UserAction(Users._garble_secret),
    "empty bundle": UserAction(Users._empty_bundle),
    "delete configuration": UserAction(Users._delete_configuration, 10.0),
}


def pod(name: str, app: str, *, ordered: bool) -> Json:
    """Return a Pod of an app; ``ordered``: with two containers that start in order."""
    annotations = {"apps.kruise.io/container-launch-priority": "Ordered"} if ordered else {}
    containers = [{"name": "main", "image": "main:1"}, {"name": "second", "image": "second:1"}]
    return {
        "metadata": {"name": name, "labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": containers if ordered else containers[:1]},
    }


@cache
def _ending_certificates(number: int) -> CertificateSet:
    """Return valid certificates that expire soon, so that the CA must change. Each number has its own certificates."""
    del number
    return issue(("kruise-webhook-service.kruise-system.svc",), EPOCH - LIFETIME + timedelta(days=30))
