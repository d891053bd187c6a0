"""Users: whoever changes the cluster and is not the manager. What they do and when is in the script."""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, cast

from app.api import names
from app.api.cloneset import CLONE_SET
from app.api.sidecarset import SIDECAR_SET
from app.certs.issue import LIFETIME, CertificateSet, issue
from app.kube.client import Client, PatchType
from app.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, TooManyRequests
from app.kube.resources import (
    MUTATINGWEBHOOKCONFIGURATIONS,
    PODS,
    SECRETS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
    Resource,
)
from app.kube.virtualtime import EPOCH
from app.manager.settings import SECRET_NAME
from app.sandbox.apiserver import ApiServer
from app.sandbox.kubelet import UNREADY
from tests.simulation import clonesets
from tests.simulation.clocks import WallClock
from tests.simulation.history import History
from tests.simulation.promises import is_active
from tests.simulation.replicas import SimulatedReplica
from tests.simulation.script import CERTIFICATE_SABOTAGE, NAMESPACE, Action
from tests.simulation.workloads.subject import Subject

Json = dict[str, Any]

CLONE_SETS = CLONE_SET.resource()
SIDECAR_SETS = SIDECAR_SET.resource()
SYSTEM = "kruise-system"
CONFIGURATIONS = {"mutating": MUTATINGWEBHOOKCONFIGURATIONS, "validating": VALIDATINGWEBHOOKCONFIGURATIONS}
CONFIGURATION_NAMES = {
    "mutating": "kruise-mutating-webhook-configuration",
    "validating": "kruise-validating-webhook-configuration",
}
#: How long it is waited for what something is to go wrong with, in seconds.
SUSPENSE_SECONDS = 4.0


class Users:
    """Carries out the script. ``replicas``: whose processes may be killed."""

    def __init__(
        self,
        api: ApiServer,
        client: Client,
        history: History,
        replicas: list[SimulatedReplica],
        rng: Random,
    ) -> None:
        self.api = api
        self.admin = client
        self.clock = client.clock
        self.history = history
        self.replicas = replicas
        self._rng = rng
        #: What the run is about, if it is not CloneSets.
        self.subject: Subject | None = None
        #: Whether somebody made handshakes fail.
        self.sabotaged = False
        #: Until when the managers cannot reach the API server.
        self.cut_off_until = 0.0
        #: Until when one kind of fault is frequent, and until when the managers' watches of a resource stand still.
        self.squalls: dict[str, float] = {}
        self.frozen: dict[str, float] = {}
        #: The CloneSet with whose next Pod the managers lose the API server, and for how many seconds.
        self._cut_off_with: tuple[str, float] | None = None
        #: The CAs that were put into the Secret by hand, PEM.
        self.given_authority = b""
        api.on_write(self._wrote)

    async def do(self, action: Action) -> None:
        """Carry it out as a user with patience: what was refused for the moment is tried again."""
        self.history.say(f"{self.clock.monotonic():10.3f} -- {action.what} {action.arguments}")
        self.sabotaged |= action.what in CERTIFICATE_SABOTAGE
        for _ in range(200):
            try:
                await _DEEDS[action.what](self, **action.arguments)
            except ApiError as refusal:
                if refusal.code < 500 and not isinstance(refusal, Conflict | TooManyRequests):
                    self.history.say(f"           -- {action.what}: {refusal.message[:200]}")
                    return
                await self.clock.sleep(3.0)
            else:
                return

    async def _create_set(self, name: str, app: str, image: str) -> None:
        await self.admin.create(SIDECAR_SETS, sidecar_set(name, app, image))

    async def _update_set(self, name: str, image: str) -> None:
        patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": image}]
        await self.admin.patch(SIDECAR_SETS, name, patch, kind=PatchType.JSON)

    async def _delete_set(self, name: str) -> None:
        await self.admin.delete(SIDECAR_SETS, name)

    async def _replace_set(self, name: str, app: str, image: str) -> None:
        """``kubectl replace --force``: another set of that name is there a moment later."""
        with suppress(NotFound):
            await self.admin.delete(SIDECAR_SETS, name)
        await self.admin.create(SIDECAR_SETS, sidecar_set(name, app, image))

    async def _garble_status(self, name: str, image: str) -> None:
        del image
        await self.admin.patch(SIDECAR_SETS, name, {"status": {"matchedPods": 99}}, subresource="status")

    async def _create_pod(self, name: str, app: str, ordered: bool) -> None:
        await self.admin.create(PODS, pod(name, app, ordered=ordered), NAMESPACE)

    async def _delete_pod(self, name: str) -> None:
        await self.admin.delete(PODS, name, NAMESPACE, grace_period_seconds=1)

    async def _relabel_pod(self, name: str, app: str) -> None:
        await self.admin.patch(PODS, name, {"metadata": {"labels": {"app": app}}}, NAMESPACE)

    async def _create_cloneset(self, name: str, **spec: Any) -> None:
        await self.admin.create(CLONE_SETS, clonesets.clone_set(name, NAMESPACE, **spec), NAMESPACE)

    async def _scale_cloneset(self, name: str, replicas: int) -> None:
        await self.admin.patch(CLONE_SETS, name, {"spec": {"replicas": replicas}}, NAMESPACE)

    async def _roll_cloneset(
        self, name: str, image: str, partition: int | None = None, marked: int | None = None
    ) -> None:
        """A user changes the image, and right before it asks for some Pods to be replaced (``marked``)."""
        if marked is not None:
            await self._mark_clones(name, marked)
        patch: list[Json] = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]
        if partition is not None:
            path = "/spec/updateStrategy/rollingUpdate/partition"
            patch.append({"op": "add", "path": path, "value": partition})
        await self.admin.patch(CLONE_SETS, name, patch, NAMESPACE, kind=PatchType.JSON)

    async def _partition_cloneset(self, name: str, partition: int) -> None:
        patch = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}}}
        await self.admin.patch(CLONE_SETS, name, patch, NAMESPACE)

    async def _delete_cloneset(self, name: str) -> None:
        await self.admin.delete(CLONE_SETS, name, NAMESPACE)

    def _clones(self, name: str, *, serving: bool = False) -> list[str]:
        """The names of the Pods of a CloneSet (``serving``: that are not about to go)."""
        pods = [pod for pod in self.api.objects(PODS) if (pod["metadata"].get("labels") or {}).get("clone") == name]
        return [pod["metadata"]["name"] for pod in pods if is_active(pod) or not serving]

    def _clone(self, name: str, number: int) -> str | None:
        """The name of one of them, if there are any."""
        clones = self._clones(name)
        return clones[number % len(clones)] if clones else None

    async def _lose_clone(self, name: str, number: int, seconds: int) -> None:
        """A user deletes a Pod of a CloneSet, with a grace period or at once."""
        if chosen := self._clone(name, number):
            await self.admin.delete(PODS, chosen, NAMESPACE, grace_period_seconds=seconds)

    async def _break_clone(self, name: str, number: int, seconds: float) -> None:
        """A Pod of a CloneSet is not ready for a while."""
        chosen = self._clone(name, number)
        if chosen is None:
            return
        with suppress(NotFound):
            await self._annotate(chosen, {UNREADY: "main"})
            await self.clock.sleep(seconds)
            await self._annotate(chosen, {UNREADY: None})

    async def _annotate(self, pod_name: str, annotations: Json) -> None:
        await self.admin.patch(PODS, pod_name, {"metadata": {"annotations": annotations}}, NAMESPACE)

    async def _evict_clone(self, name: str, number: int, seconds: float) -> None:
        """A node throws a Pod of a CloneSet out: it has failed, and is there until somebody clears it away."""
        chosen = self._clone(name, number)
        if chosen is None:
            return
        with suppress(NotFound):
            status = {"phase": "Failed", "reason": "Evicted", "message": "simulated"}
            await self.admin.patch(PODS, chosen, {"status": status}, NAMESPACE, subresource="status")
            await self.clock.sleep(seconds)
            await self.admin.delete(PODS, chosen, NAMESPACE, grace_period_seconds=0)

    async def _drain_clone(self, name: str, number: int) -> None:
        """Who drains a node asks for a Pod of a CloneSet to be evicted, and may be told to come again."""
        if chosen := self._clone(name, number):
            with suppress(TooManyRequests):
                eviction = {"metadata": {"name": chosen}, "deleteOptions": {"gracePeriodSeconds": 1}}
                await self.admin.create(PODS, eviction, NAMESPACE, name=chosen, subresource="eviction")

    async def _create_workload(self, name: str, beside: Json | None = None, **spec: Any) -> None:
        subject = self._about()
        if subject.beside is not None and beside is not None:
            with suppress(AlreadyExists):
                made = subject.beside.manifest(name, NAMESPACE, **beside)
                await self.admin.create(subject.beside.resource, made, _scope(subject.beside.resource))
        await self.admin.create(subject.resource, subject.manifest(name, NAMESPACE, **spec), NAMESPACE)

    async def _change_workload(self, name: str, path: str, value: Any) -> None:
        patch = [{"op": "add", "path": path, "value": value}]
        await self.admin.patch(self._about().resource, name, patch, NAMESPACE, kind=PatchType.JSON)

    async def _change_beside(self, name: str, path: str, value: Any) -> None:
        patch = [{"op": "add", "path": path, "value": value}]
        resource = self._about().beside
        if resource is not None:
            await self.admin.patch(resource.resource, name, patch, _scope(resource.resource), kind=PatchType.JSON)

    async def _delete_workload(self, name: str) -> None:
        await self.admin.delete(self._about().resource, name, NAMESPACE)

    def _about(self) -> Subject:
        if self.subject is None:
            raise AssertionError("this run is about no such workload")
        return self.subject

    async def _squall(self, fault: str, seconds: float) -> None:
        self.squalls[fault] = self.clock.monotonic() + seconds

    async def _freeze_watches(self, resource: str, seconds: float) -> None:
        # Whoever sleeps through the one before is not woken by a shorter one.
        self.frozen[resource] = max(self.frozen.get(resource, 0.0), self.clock.monotonic() + seconds)

    async def _mark_clones(self, name: str, number: int, *, serving: bool = False) -> None:
        """A user asks the controller to replace some Pods (``serving``: of those that are not about to go)."""
        clones = self._clones(name, serving=serving)
        for chosen in clones if number == 2 else clones[number::2]:
            body = {"metadata": {"labels": {names.SPECIFIED_DELETE: "true"}}}
            with suppress(NotFound):
                await self.admin.patch(PODS, chosen, body, NAMESPACE)

    async def _kill(self, replica: int, process: str) -> None:
        chosen = self.replicas[replica]
        (chosen.webhook if process == chosen.webhook.name else chosen.reconciler).kill("by the script")

    async def _forget_history(self) -> None:
        """The API server starts anew: every watch ends, and where it was is forgotten."""
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
        """The managers lose the API server, too short for a Lease to end, and history goes on without them."""
        self.cut_off_until = self.clock.monotonic() + seconds
        self.api.end_watches()
        await self.clock.sleep(0.5)
        pods = [pod["metadata"] for pod in self.api.objects(PODS) if pod["metadata"].get("namespace") == NAMESPACE]
        for metadata in pods[lost % 3 :: 3]:
            with suppress(ApiError):  # whoever is asked about it may be cut off, too
                await self.admin.delete(PODS, metadata["name"], NAMESPACE, grace_period_seconds=lost % 2)
        await self.clock.sleep(self.cut_off_until - self.clock.monotonic())
        self.api.compact()

    async def _cut_off_at_creation(self, name: str, seconds: float) -> None:
        """The managers lose the API server just when it has made what they asked for: nobody is told of that."""
        self._cut_off_with = (name, seconds)
        await self.clock.sleep(SUSPENSE_SECONDS)
        self._cut_off_with = None

    async def _blind_creation(self, name: str, seconds: float, resource: str = "pods") -> None:
        """Nobody is told of what the managers create next, nor sees it for a while."""
        await self._freeze_watches(resource, SUSPENSE_SECONDS + seconds + 4.0)
        await self._cut_off_at_creation(name, seconds)

    def _wrote(self, verb: str, resource: Resource, _before: Json | None, after: Json | None) -> None:
        if self._cut_off_with is None or verb != "create" or after is None:
            return
        name, seconds = self._cut_off_with
        if (after["metadata"].get("labels") or {}).get("clone") == name:
            self.cut_off_until, self._cut_off_with = self.clock.monotonic() + seconds, None

    async def _set_clock(self, seconds: float) -> None:
        """The time on everybody's wall is another one."""
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


_DEEDS: Mapping[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "create set": Users._create_set,
    "update set": Users._update_set,
    "delete set": Users._delete_set,
    "replace set": Users._replace_set,
    "garble status": Users._garble_status,
    "create pod": Users._create_pod,
    "delete pod": Users._delete_pod,
    "relabel pod": Users._relabel_pod,
    "create cloneset": Users._create_cloneset,
    "scale cloneset": Users._scale_cloneset,
    "roll cloneset": Users._roll_cloneset,
    "partition cloneset": Users._partition_cloneset,
    "delete cloneset": Users._delete_cloneset,
    "lose clone": Users._lose_clone,
    "break clone": Users._break_clone,
    "evict clone": Users._evict_clone,
    "drain clone": Users._drain_clone,
    "create workload": Users._create_workload,
    "change workload": Users._change_workload,
    "change beside": Users._change_beside,
    "delete workload": Users._delete_workload,
    "squall": Users._squall,
    "freeze watches": Users._freeze_watches,
    "mark clones": Users._mark_clones,
    "kill": Users._kill,
    "stop": Users._stop,
    "stop leader": Users._stop_leader,
    "cut off": Users._cut_off,
    "cut off at creation": Users._cut_off_at_creation,
    "blind creation": Users._blind_creation,
    "forget history": Users._forget_history,
    "set clock": Users._set_clock,
    "end certificates": Users._end_certificates,
    "delete secret": Users._delete_secret,
    "garble secret": Users._garble_secret,
    "empty bundle": Users._empty_bundle,
    "delete configuration": Users._delete_configuration,
}


def sidecar_set(name: str, app: str, image: str) -> Json:
    """A set that adds one container to Pods of an app."""
    return {
        "apiVersion": SIDECAR_SET.resource().api_version,
        "kind": SIDECAR_SET.kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "containers": [{"name": name, "image": image}],
            "updateStrategy": {"type": "NotUpdate"},
        },
    }


def pod(name: str, app: str, *, ordered: bool) -> Json:
    """A Pod of an app; ``ordered``: with two containers that start one after the other."""
    annotations = {"apps.kruise.io/container-launch-priority": "Ordered"} if ordered else {}
    containers = [{"name": "main", "image": "main:1"}, {"name": "second", "image": "second:1"}]
    return {
        "metadata": {"name": name, "labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": containers if ordered else containers[:1]},
    }


def _scope(resource: Resource) -> str:
    """The namespace of an object of a kind; empty where it has none."""
    return NAMESPACE if resource.namespaced else ""


@cache
def _ending_certificates(number: int) -> CertificateSet:
    """A sound set that ends before long, so that a change of the CA is due; several, so that one may follow another."""
    del number
    return issue(("kruise-webhook-service.kruise-system.svc",), EPOCH - LIFETIME + timedelta(days=30))
