"""One run: a control plane in memory, three nodes, two replicas of the manager, and a script, all on virtual time."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any

from cryptography import x509

from app.api.cloneset import CLONE_SET
from app.api.crd import manifest
from app.api.registry import KINDS
from app.api.sidecarset import SIDECAR_SET
from app.certs.issue import LIFETIME, CertificateError, CertificateSet, expiry, from_secret_data, issue
from app.kube.client import Client, PatchType
from app.kube.errors import ApiError, Conflict, TooManyRequests
from app.kube.resources import (
    CONTROLLERREVISIONS,
    CUSTOMRESOURCEDEFINITIONS,
    MUTATINGWEBHOOKCONFIGURATIONS,
    NAMESPACES,
    PODS,
    SECRETS,
    VALIDATINGWEBHOOKCONFIGURATIONS,
    Resource,
)
from app.kube.virtualtime import EPOCH, VirtualClock
from app.kube.virtualtime import run as run_virtually
from app.manager.settings import DEFAULT_RENEW_BEFORE, SECRET_NAME
from app.sandbox.apiserver import ApiServer
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.simulation import clonesets, invariants
from tests.simulation.faults import CALM, FaultyTransport, Weather, weather
from tests.simulation.history import History
from tests.simulation.keys import keys_by_seed
from tests.simulation.replicas import SimulatedReplica, parsed
from tests.simulation.script import CERTIFICATE_SABOTAGE, NAMESPACE, Action, script

Json = dict[str, Any]

CLONE_SETS = CLONE_SET.resource()
SYSTEM = "kruise-system"
SERVICE = "kruise-webhook-service.kruise-system"
MANAGER = "system:serviceaccount:kruise-system:kruise-manager"
#: How long everything may take to come to rest after the last action, and how long it must then stay quiet.
REST_SECONDS = 1800.0
QUIET_SECONDS = 130.0
#: What the Secret holds while the CA is being changed.
_UNFINISHED = ("next-ca-cert.pem", "previous-ca-cert.pem")
_CONFIGURATIONS = {"mutating": MUTATINGWEBHOOKCONFIGURATIONS, "validating": VALIDATINGWEBHOOKCONFIGURATIONS}
_CONFIGURATION_NAMES = {"mutating": "kruise-mutating-webhook-configuration"} | {
    "validating": "kruise-validating-webhook-configuration"
}


@dataclass(frozen=True, slots=True)
class Run:
    """What makes a run: the same values give the same history."""

    seed: int
    seconds: float = 240.0
    actions: int = 40
    #: Indexes into the script; None: all of it.
    keep: frozenset[int] | None = None
    #: Faults left out.
    without: tuple[str, ...] = ()

    @property
    def script(self) -> tuple[Action, ...]:
        """What happens in it."""
        made = script(self.seed, seconds=self.seconds, actions=self.actions)
        return made if self.keep is None else tuple(a for i, a in enumerate(made) if i in self.keep)

    @property
    def command(self) -> str:
        """How to see it again."""
        parts = [f"python -m tests.simulation --seeds {self.seed}"]
        if (self.seconds, self.actions) != (240.0, 40):
            parts.append(f"--seconds {self.seconds:g} --actions {self.actions}")
        if self.keep is not None:
            parts.append(f"--keep {','.join(map(str, sorted(self.keep))) or 'none'}")
        if self.without:
            parts.append(f"--without {','.join(self.without)}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went."""

    run: Run
    broken: tuple[str, ...]
    digest: str
    writes: int
    virtual_seconds: float
    last: tuple[str, ...]


def simulate(run: Run, *, replicas: int = 2) -> Outcome:
    """Run it from beginning to end, in virtual time."""
    with keys_by_seed(run.seed), _errors_logged() as errors, _no_collector():
        world = World(run, errors, replicas)
        seconds = run_virtually(world.run())
    history = world.history
    return Outcome(run, tuple(history.broken), history.digest, history.count, seconds, tuple(history.last))


class World:
    """The parts of one run, and what is checked of them."""

    def __init__(self, run: Run, errors: list[str], replicas: int) -> None:
        self._run = run
        self._number = replicas
        self.history = History()
        self.clock = VirtualClock()
        self._errors = errors
        self._rng = Random(f"world {run.seed}")
        self._weather = weather(Random(f"weather {run.seed}")).without(*run.without)
        self._now: Weather = CALM
        self._script = run.script
        self._trusts = not any(action.what in CERTIFICATE_SABOTAGE for action in self._script)
        self._writes: Counter[str] = Counter()
        self._promises = clonesets.Promises()
        self._users: set[asyncio.Task[None]] = set()

    # ---- the run

    async def run(self) -> float:
        """From an empty cluster to rest. Returns the virtual seconds it took."""
        self.api = ApiServer(clock=self.clock, rng=Random(f"api {self._run.seed}"))
        self.admin = Client(self.api.transport(), self.clock)
        self.api.webhooks.local[SERVICE] = self._review
        await self._install()
        self.api.on_write(self._wrote)
        self.replicas = [self._replica(number) for number in range(self._number)]
        nodes = Nodes(
            Client(self.api.transport("system:nodes"), self.clock),
            simulated_nodes(3),
            rng=Random(f"nodes {self._run.seed}"),
            bind=True,
            heartbeat_seconds=3600.0,  # nobody here takes a node for dead
        )
        background = [asyncio.create_task(nodes.run(), name="nodes")]
        background += [asyncio.create_task(replica.run(), name=replica.name) for replica in self.replicas]
        try:
            await self._until(self._in_place, "the webhooks are registered")
            await self._follow_script()
            await self._rest()
        except TimeoutError as late:
            self.history.breaks(self.clock.monotonic(), f"not within {REST_SECONDS:.0f} s: {late}")
        finally:
            for task in (*background, *self._users):
                task.cancel()
            await asyncio.gather(*background, *self._users, return_exceptions=True)
            self.api.close()
        for error in self._errors:
            self.history.breaks(self.clock.monotonic(), error)
        return self.clock.monotonic()

    async def _install(self) -> None:
        for kind in KINDS:
            await self.admin.create(CUSTOMRESOURCEDEFINITIONS, _definition(kind.crd_name))
        for name in (SYSTEM, NAMESPACE):
            await self.admin.create(NAMESPACES, {"metadata": {"name": name}})

    def _replica(self, number: int) -> SimulatedReplica:
        name = f"replica-{number}"

        def connect(kill: Callable[[str], None]) -> FaultyTransport:
            rng = Random(self._rng.random())
            return FaultyTransport(self.api.transport(MANAGER), self.clock, rng, lambda: self._now, kill)

        return SimulatedReplica(name, self.clock, Random(f"{name} {self._run.seed}"), connect)

    async def _follow_script(self) -> None:
        began = self.clock.monotonic()
        self._now = self._weather
        for action in self._script:
            await self.clock.sleep(began + action.at - self.clock.monotonic())
            self.history.say(f"{self.clock.monotonic():10.3f} -- {action.what} {action.arguments}")
            task = asyncio.create_task(self._do(action))
            self._users.add(task)
            task.add_done_callback(self._users.discard)
        await self.clock.sleep(began + self._run.seconds - self.clock.monotonic())

    async def _rest(self) -> None:
        self._now = CALM
        await self._until(lambda: not self._users, "the users are answered")
        await self._until(self._in_place, "the webhooks are registered again")
        await self._until(lambda: not any(self._at_rest()), lambda: "; ".join(self._at_rest()))
        before = Counter(self._writes)
        await self.clock.sleep(QUIET_SECONDS)
        for sentence in (*self._at_rest(), *invariants.quiet(self._writes - before, QUIET_SECONDS)):
            self.history.breaks(self.clock.monotonic(), sentence)

    async def _until(self, holds: Callable[[], object], what: str | Callable[[], str]) -> None:
        deadline = self.clock.monotonic() + REST_SECONDS
        while not holds():
            if self.clock.monotonic() > deadline:
                raise TimeoutError(what if isinstance(what, str) else what())
            await self.clock.sleep(5.0)

    # ---- what users do

    async def _do(self, action: Action) -> None:
        """Carry it out as a user with patience: what was refused for the moment is tried again."""
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
        await self.admin.create(SIDECAR_SET.resource(), sidecar_set(name, app, image))

    async def _update_set(self, name: str, image: str) -> None:
        patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": image}]
        await self.admin.patch(SIDECAR_SET.resource(), name, patch, kind=PatchType.JSON)

    async def _delete_set(self, name: str) -> None:
        await self.admin.delete(SIDECAR_SET.resource(), name)

    async def _garble_status(self, name: str, image: str) -> None:
        del image
        await self.admin.patch(SIDECAR_SET.resource(), name, {"status": {"matchedPods": 99}}, subresource="status")

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

    async def _roll_cloneset(self, name: str, image: str) -> None:
        patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]
        await self.admin.patch(CLONE_SETS, name, patch, NAMESPACE, kind=PatchType.JSON)

    async def _partition_cloneset(self, name: str, partition: int) -> None:
        patch = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}}}
        await self.admin.patch(CLONE_SETS, name, patch, NAMESPACE)

    async def _kill(self, replica: int, process: str) -> None:
        chosen = self.replicas[replica]
        (chosen.webhook if process == chosen.webhook.name else chosen.reconciler).kill("by the script")

    async def _forget_history(self) -> None:
        """The API server starts anew: every watch ends, and where it was is forgotten."""
        self.api.end_watches()
        self.api.compact()

    async def _end_certificates(self) -> None:
        await self._put_secret(_ending_certificates(self._rng.randrange(3)).secret_data())

    async def _put_secret(self, data: Mapping[str, str]) -> None:
        patch = [{"op": "add", "path": "/data", "value": dict(data)}]
        await self.admin.patch(SECRETS, SECRET_NAME, patch, SYSTEM, kind=PatchType.JSON)

    async def _delete_secret(self) -> None:
        await self.admin.delete(SECRETS, SECRET_NAME, SYSTEM)

    async def _garble_secret(self) -> None:
        await self._put_secret({"tls.crt": base64.b64encode(b"garbage").decode()})

    async def _empty_bundle(self, kind: str) -> None:
        resource, name = _CONFIGURATIONS[kind], _CONFIGURATION_NAMES[kind]
        live = await self.admin.get(resource, name)
        for entry in live["webhooks"]:
            entry["clientConfig"].pop("caBundle", None)
        await self.admin.replace(resource, name, live)

    async def _delete_configuration(self, kind: str) -> None:
        await self.admin.delete(_CONFIGURATIONS[kind], _CONFIGURATION_NAMES[kind])

    # ---- reviews

    async def _review(self, path: str, body: bytes) -> tuple[int, bytes]:
        """What the Service does with a review: one of the replicas that are ready answers, if it lives long enough."""
        ready = [replica for replica in self.replicas if replica.answers]
        if not ready:
            raise ConnectionRefusedError
        replica = ready[self._rng.randrange(len(ready))]
        self._check_trust(replica)
        await self.clock.sleep(self._rng.expovariate(1000.0))
        process = replica.webhook.process
        known = [one.to_dict() for one in process.caches.sidecarsets.list()] if process is not None else []
        status, answer = await replica.review(path, body)
        if path == "/mutate-pod" and status == 200:
            self._check_injection(parsed(body)["request"], parsed(answer)["response"], known)
        return status, answer

    def _check_injection(self, request: Json, response: Json, known: list[Json]) -> None:
        if request.get("operation") != "CREATE" or not response.get("allowed") or not request.get("object"):
            return
        for one in known:
            if not invariants.matches(one, request["object"]):
                continue
            patch = base64.b64decode(response.get("patch") or "").decode()
            for container in one["spec"].get("containers") or ():
                if f'"name":"{container["name"]}"' not in patch.replace(" ", ""):
                    at = self.clock.monotonic()
                    pod_name = request["object"]["metadata"].get("name")
                    self.history.breaks(at, f"Pod {pod_name} let through without {container['name']}")

    def _check_trust(self, replica: SimulatedReplica) -> None:
        """At every moment the bundles that are published trust whatever is served."""
        board = replica.shared.certificate.read()
        if not self._trusts or board is None:
            return
        for kind, resource in _CONFIGURATIONS.items():
            live = self._stored(resource).get(_CONFIGURATION_NAMES[kind])
            for entry in (live or {}).get("webhooks") or ():
                bundle = base64.b64decode(entry["clientConfig"].get("caBundle") or "")
                if not _trusts(bundle, board.cert):
                    message = f"the bundle of {entry['name']} does not trust what {replica.name} serves"
                    self.history.breaks(self.clock.monotonic(), message)

    # ---- after every write

    def _wrote(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        at = self.clock.monotonic()
        obj = after if after is not None else before
        if obj is None:
            return
        kind = resource.kind
        if kind == "Lease" and before is not None and after is not None and _holder(before) == _holder(after):
            return
        if kind not in ("Lease", "Node", "Event"):
            self._writes[f"{kind} {obj['metadata'].get('name')}"] += 1
        self.history.note(at, verb, resource, obj)
        for sentence in self._breaches(kind, before, after):
            self.history.breaks(at, sentence)

    def _breaches(self, kind: str, before: Json | None, after: Json | None) -> list[str]:
        at = self.clock.monotonic()
        if kind == "Pod":
            pods = [one for one in self.api.objects(PODS) if one["metadata"].get("namespace") == NAMESPACE]
            found = [*self._promises.broken_by(at, before, after, pods)]
            return found if after is None else [*found, *invariants.started_in_order(before, after)]
        if after is None:
            return []
        if kind == "CloneSet":
            self._promises.asked(at, after)
        if kind == "SidecarSet" and before is not None:
            return [*invariants.status_goes_forward(before, after)]
        if kind == "ControllerRevision" and before is None:
            return [*invariants.no_twin(after, list(self._stored(CONTROLLERREVISIONS).values()))]
        return []

    # ---- at rest

    def _in_place(self) -> bool:
        """Whether the API server calls us, every replica answers, and one leads."""
        complete = all(
            (self._stored(resource).get(_CONFIGURATION_NAMES[kind]) or {}).get("webhooks")
            for kind, resource in _CONFIGURATIONS.items()
        )
        return complete and all(replica.answers for replica in self.replicas) and self._leaders() == 1

    def _leaders(self) -> int:
        return sum(replica.shared.state("reconciler").leading for replica in self.replicas)

    def _at_rest(self) -> list[str]:
        pods = [found for found in self._stored(PODS).values() if found["metadata"].get("namespace") == NAMESPACE]
        sentences = list(invariants.pods_are_ready(pods))
        sentences += self._certificates_to_do()
        sentences += self._bundles_to_do()
        for one in self._stored(SIDECAR_SET.resource()).values():
            sentences += invariants.counts_are_true(one, pods)
            sentences += invariants.latest_is_named(one, self.api.objects(CONTROLLERREVISIONS))
        for one in self._stored(CLONE_SETS).values():
            sentences += clonesets.at_rest(one, pods)
        return sentences

    def _certificates_to_do(self) -> list[str]:
        """Why the Secret cannot stay as it is."""
        secret = self._stored(SECRETS).get(SECRET_NAME)
        if secret is None:
            return [f"Secret {SECRET_NAME} is not there"]
        try:
            ends = expiry(from_secret_data(secret["data"]).cert)
        except CertificateError as error:
            return [f"Secret {SECRET_NAME}: {error}"]
        due = ends < self.clock.now() + DEFAULT_RENEW_BEFORE
        unfinished = [f"Secret {SECRET_NAME} has {key}" for key in _UNFINISHED if key in secret["data"]]
        return [f"Secret {SECRET_NAME}: its certificate ends at {ends}", *unfinished] if due else unfinished

    def _bundles_to_do(self) -> list[str]:
        """Who does not carry the bundle that every replica wants."""
        boards = [replica.shared.certificate.read() for replica in self.replicas]
        wanted = {board.ca_bundle for board in boards if board is not None}
        carried = {
            entry["name"]: base64.b64decode(entry["clientConfig"].get("caBundle") or "")
            for resource in _CONFIGURATIONS.values()
            for live in self.api.objects(resource)
            for entry in live.get("webhooks") or ()
        }
        for definition in self.api.objects(CUSTOMRESOURCEDEFINITIONS):
            client = (definition["spec"].get("conversion") or {}).get("webhook", {}).get("clientConfig", {})
            carried[definition["metadata"]["name"]] = base64.b64decode(client.get("caBundle") or "")
        return [
            f"{name} carries another CA bundle than the replicas want"
            for name, bundle in carried.items()
            if {bundle} != wanted
        ]

    def _stored(self, resource: Resource) -> dict[str, Json]:
        """All objects of a resource by name, as the API server holds them."""
        return {obj["metadata"]["name"]: obj for obj in self.api.objects(resource)}


_DEEDS: Mapping[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "create set": World._create_set,
    "update set": World._update_set,
    "delete set": World._delete_set,
    "garble status": World._garble_status,
    "create pod": World._create_pod,
    "delete pod": World._delete_pod,
    "relabel pod": World._relabel_pod,
    "create cloneset": World._create_cloneset,
    "scale cloneset": World._scale_cloneset,
    "roll cloneset": World._roll_cloneset,
    "partition cloneset": World._partition_cloneset,
    "kill": World._kill,
    "forget history": World._forget_history,
    "end certificates": World._end_certificates,
    "delete secret": World._delete_secret,
    "garble secret": World._garble_secret,
    "empty bundle": World._empty_bundle,
    "delete configuration": World._delete_configuration,
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


@cache
def _definition(name: str) -> Json:
    return next(manifest(kind) for kind in KINDS if kind.crd_name == name)


@cache
def _ending_certificates(number: int) -> CertificateSet:
    """A sound set that ends before long, so that a change of the CA is due; several, so that one may follow another."""
    del number
    return issue(("kruise-webhook-service.kruise-system.svc",), EPOCH - LIFETIME + timedelta(days=30))


@cache
def _trusts(bundle: bytes, leaf: bytes) -> bool:
    certificate = x509.load_pem_x509_certificate(leaf)
    for authority in x509.load_pem_x509_certificates(bundle) if bundle else ():
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001 - any reason means: not by this one
            continue
        return True
    return False


def _holder(lease: Json) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity"))


@contextmanager
def _no_collector() -> Iterator[None]:
    """Garbage waits for the end of a run: a collector in its midst costs a sixth of it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _errors_logged:
    """Collects what is logged as a mistake of ours (an error with a stack) while it is entered."""

    def __enter__(self) -> list[str]:
        self._found: list[str] = []
        self._handler = _Collect(self._found)
        self._root = logging.getLogger()
        self._level = self._root.level
        self._root.addHandler(self._handler)
        return self._found

    def __exit__(self, *_: object) -> None:
        self._root.removeHandler(self._handler)


class _Collect(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._found.append(f"logged as a mistake: {record.getMessage()}: {record.exc_info[1]!r}")
