"""Pulls the images listed in the node's NodeImage and reports progress. [KD-30 … KD-41]"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from app.daemon import image_plan
from app.daemon.credentials import (
    Credential,
    CredentialsError,
    Keyring,
    for_image,
    lookup,
    read_secret,
    without_credentials,
)
from app.daemon.cri.types import Auth, CriError, Runtime, RuntimeUnavailable
from app.daemon.image_plan import FAILED, PULLING, SUCCEEDED, WAITING, Key, Task
from app.daemon.objects import NODE_IMAGES, ImageTagStatus, NodeImage, SecretReference
from app.kube.client import Client, patch_seen_status
from app.kube.clock import TokenBucket, rfc3339
from app.kube.concurrency import cancel
from app.kube.controller import Controller, Result, Watch, to_self
from app.kube.errors import KubeError
from app.kube.events import EventRecorder, reference
from app.kube.expectations import ResourceVersionExpectations
from app.kube.fielderrors import duration
from app.kube.jsonvalues import cut_text
from app.kube.objects import Secret, decode_secret
from app.kube.queue import RateLimits
from app.kube.resources import SECRETS, ObjectKey
from app.kube.store import Store
from app.kube.text import truncated

logger = logging.getLogger(__name__)

#: Rate limit of status writes. [KD-40]
_WRITES_PER_SECOND: Final = 0.5
_BURST: Final = 5
#: Back-off of failed syncs of the NodeImage; failed pulls use image_plan.pause_after. [KD-30]
LIMITS: Final = RateLimits(base_delay=0.5, max_delay=50.0, qps=10.0, burst=100)
#: Minimum and maximum seconds for which a Secret is cached. [KD-38]
_SECRET_SECONDS: Final = (300.0, 600.0)
#: Maximum total size of cached Secrets in bytes, number of concurrent reads, and number of credentials per image.
#: [KD-104]
_SECRET_BYTES: Final = 2 * 1024 * 1024
_READ_AT_ONCE: Final = 4
_MAX_CREDENTIALS: Final = 256
#: Defaults of --max-workers-for-pull-image (-1 means unlimited) and --image-share-per-namespace.
MAX_WORKERS: Final = -1
SHARE_PERCENT: Final = 100
#: With fewer workers than this, none is reserved for other namespaces. [KD-106]
_SHARED_FROM: Final = 4
_RUNTIME_AWAY_SECONDS: Final = 1.0
#: Maximum number of owners of a tag that receive an event when its pull fails.
_MAX_EVENTS: Final = 20


@dataclass(slots=True)
class _Pull:
    """A pull that is in progress, or finished but not yet in the status."""

    task: Task
    status: ImageTagStatus
    job: asyncio.Task[None] | None = None


@dataclass(slots=True)
class SecretCache:
    """Caches Secrets. They are read on demand, and only a few at a time because each may be up to 1 MiB. [KD-38]"""

    client: Client
    rng: Random
    #: Secret → (expiry, Secret, size), oldest read first.
    _known: dict[SecretReference, tuple[float, Secret, int]] = field(default_factory=dict)
    _reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READ_AT_ONCE))

    async def get(self, wanted: SecretReference) -> Secret | None:
        """Return the Secret. If it cannot be read, log why and return None."""
        if not (wanted.namespace and wanted.name):
            # A request without a name would list Secrets.
            logger.warning("ignoring a pull secret without a namespace or a name")
            return None
        async with self._reading:
            known = self._known.get(wanted)
            if known is not None and known[0] > self.client.clock.monotonic():
                return known[1]
            try:
                secret: Secret = await self.client.get(SECRETS, wanted.name, wanted.namespace, decode=decode_secret)
            except KubeError as error:
                logger.warning("cannot read pull secret %s/%s: %s", wanted.namespace, wanted.name, error)
                return None
            self._remember(wanted, secret)
            return secret

    def _remember(self, wanted: SecretReference, secret: Secret) -> None:
        """Cache the Secret; drop expired ones, then the oldest until all fit."""
        now = self.client.clock.monotonic()
        self._known.pop(wanted, None)
        self._known[wanted] = (now + self.rng.uniform(*_SECRET_SECONDS), secret, sum(map(len, secret.data.values())))
        room = _SECRET_BYTES
        for one, (until, _, size) in reversed(list(self._known.items())):
            if until > now and size <= room:
                room -= size
            else:
                del self._known[one]

    @property
    def known(self) -> tuple[SecretReference, ...]:
        return tuple(self._known)

    def forget(self, secrets: Iterable[SecretReference]) -> None:
        """Drop Secrets that may have changed. [KD-94]"""
        for secret in secrets:
            self._known.pop(secret, None)


class ImagePuller:
    """Image puller of one node. Start ``run`` as a task."""

    def __init__(
        self,
        node: str,
        store: Store[NodeImage],
        client: Client,
        runtime: Runtime,
        recorder: EventRecorder,
        keyrings: Sequence[Keyring],
        rng: Random,
        *,
        max_workers: int,
        share: int,
        controller: Callable[..., Controller],
    ) -> None:
        self._key = ObjectKey("", node)
        self._store = store
        self._client = client
        self._clock = client.clock
        self._runtime = runtime
        self._recorder = recorder
        self._keyrings = keyrings
        self._secrets = SecretCache(client, rng)
        self._slots = asyncio.Semaphore(max_workers) if max_workers > 0 else None
        #: Maximum number of workers for one namespace, whose registry may be slow. [KD-106]
        self._share = max(1, max_workers * share // 100) if max_workers >= _SHARED_FROM else max_workers
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._writes = TokenBucket(client.clock, qps=_WRITES_PER_SECOND, burst=_BURST)
        self._pulls: dict[Key, _Pull] = {}
        self._written = ResourceVersionExpectations(client.clock)
        self.controller = controller(
            "imagepuller", watches=[Watch(store, to_self)], reconcile=self._sync, workers=1, limits=LIMITS
        )

    async def run(self) -> None:
        """Run until canceled; pulls in progress are canceled too."""
        try:
            await self.controller.run()
        finally:
            await cancel(*(pull.job for pull in self._pulls.values() if pull.job is not None))

    @property
    def pulls(self) -> dict[Key, ImageTagStatus]:
        """Status of every pull that is in progress, or finished but not yet in the NodeImage."""
        return {key: pull.status for key, pull in self._pulls.items()}

    # ---- syncing the NodeImage

    async def _sync(self, key: ObjectKey) -> Result | None:
        node_image = self._store.by_key(key)
        running = {key: pull.task.version for key, pull in self._pulls.items()}
        changes = image_plan.changes(node_image, running)
        for stopped in changes.stop:
            self._stop(stopped)
        for task in changes.start:
            self._start(task)
        if node_image is None or self._written.unsatisfied(node_image.metadata) is not None:
            return None
        patch = image_plan.status_patch(node_image, {key: pull.status for key, pull in self._pulls.items()})
        if patch is None:
            return None
        if not self._writes.try_take():
            return Result(requeue_after=1.0 / _WRITES_PER_SECOND)
        self._written.expect(await patch_seen_status(self._client, NODE_IMAGES, node_image.metadata, patch))
        return None

    def _start(self, task: Task) -> None:
        pull = _Pull(task, ImageTagStatus(task.key.tag, WAITING, version=task.version))
        self._pulls[task.key] = pull
        pull.job = asyncio.get_running_loop().create_task(self._work(pull), name=f"pull {task.reference}")

    def _stop(self, key: Key) -> None:
        pull = self._pulls.pop(key, None)
        if pull is not None and pull.job is not None:
            pull.job.cancel()

    def _show(self, pull: _Pull, **changes: object) -> None:
        pull.status = msgspec.structs.replace(pull.status, **changes)
        self.controller.queue.add(self._key)

    # ---- one pull

    async def _work(self, pull: _Pull) -> None:
        if self._slots is None:
            await self._carry_out(pull)
            return
        namespace = pull.task.owners[0].namespace if pull.task.owners else ""
        if not namespace:
            async with self._slots:
                await self._carry_out(pull)
            return
        async with self._shares.setdefault(namespace, asyncio.Semaphore(self._share)), self._slots:
            await self._carry_out(pull)

    async def _carry_out(self, pull: _Pull) -> None:
        task, began = pull.task, self._clock.monotonic()
        self._show(pull, phase=PULLING, start_time=self._now())
        try:
            image_id, error = await self._attempts(task, began)
        except Exception:  # one pull must not stop the others
            logger.exception("pulling %s failed unexpectedly", task.reference)
            image_id, error = "", "pulling failed unexpectedly; see the log of the node agent"
        took = self._clock.monotonic() - began
        if error:
            logger.warning("pulling %s failed: %s", task.reference, error)
            message = cut_text(truncated(error, image_plan.MAX_MESSAGE), image_plan.MAX_MESSAGE_BYTES)
            self._show(pull, phase=FAILED, message=message, completion_time=self._now())
        else:
            logger.info("pulled %s in %.1f s", task.reference, took)
            self._show(pull, phase=SUCCEEDED, progress=100, image_id=image_id, completion_time=self._now())
        self._record_events(task, error, took)

    async def _attempts(self, task: Task, began: float) -> tuple[str, str]:
        """Return the image ID and the error; one of them is empty."""
        error = ""
        for attempt in range(1, task.attempts + 1):
            if attempt > 1:
                await self._clock.sleep(image_plan.pause_after(attempt - 1))
            seconds = task.attempt_seconds(self._clock.monotonic() - began)
            if seconds <= 0:
                return "", image_plan.NO_TIME_LEFT
            try:
                return await self._clock.wait_for(self._attempt(task, seconds), seconds), ""
            except TimeoutError:
                error = f"pulling image {task.reference} is canceled"
            except (CriError, CredentialsError) as failure:
                error = str(failure)
            logger.info("pulling %s, attempt %d of %d: %s", task.reference, attempt, task.attempts, error)
        return "", error

    async def _attempt(self, task: Task, seconds: float) -> str:
        """Make one attempt. While the runtime is unavailable, wait: it may be restarting. [KD-33]"""
        while True:
            try:
                if task.if_not_present and (image := image_plan.find(await self._runtime.images(seconds), task.key)):
                    return image_plan.image_id(task.key, image)
                await self._pull(task, seconds)
                return image_plan.image_id(task.key, image_plan.find(await self._runtime.images(seconds), task.key))
            except RuntimeUnavailable as error:
                logger.info("pulling %s is delayed: %s", task.reference, error)
                await self._clock.sleep(_RUNTIME_AWAY_SECONDS)

    async def _pull(self, task: Task, seconds: float) -> None:
        """Try all credentials in turn; pull anonymously only for namespaces that provide no credentials.
        [KD-37]"""
        tries = await self._tries(task, seconds)
        auths = [auth for auth in tries if auth is not None]
        errors = []
        for auth in tries:
            try:
                await self._runtime.pull(task.reference, auth, task.labels, task.annotations, seconds)
            except RuntimeUnavailable:
                raise
            except CriError as error:
                # Runtimes and registries may repeat credentials in their errors.
                errors.append(without_credentials(str(error), auths))
            else:
                return
        # The credentials may have been rotated. [KD-94]
        self._secrets.forget(task.secrets)
        for keyring in self._keyrings:
            keyring.forget()
        raise CriError(image_plan.joined(errors))

    async def _tries(self, task: Task, seconds: float) -> list[Auth | None]:
        """Return the credentials to try: those of Secrets, then those of the node, as the kubelet orders them; None for
        an anonymous pull.

        If jobs in several namespaces request the tag, their credentials are tried in turn, so that wrong credentials of
        one namespace neither fail nor delay the pull for another. A namespace without credentials is treated as if no
        other namespace requested the tag. [KD-109]
        """
        given, failed = await self._given(task)
        namespaces = {one.namespace for one in task.owners}
        if len(namespaces) < 2 and failed:
            raise next(iter(failed.values()))
        for namespace, error in failed.items():
            logger.warning("pulling %s without the credentials of namespace %s: %s", task.reference, namespace, error)
        of_node: list[Auth] = []
        for keyring in self._keyrings:
            of_node += lookup(await keyring.credentials(task.reference, seconds / 2), task.reference)
        if len(namespaces) < 2:
            every = [one for found in given.values() for one in found]
            return list(dict.fromkeys([*lookup(every, task.reference), *of_node])) or [None]
        without = (
            {one for one in namespaces if not given.get(one) and one not in failed} if not given.get("") else set()
        )
        turns: list[Sequence[Auth | None]] = [lookup(found, task.reference) for found in given.values() if found]
        turns.append(of_node or ([None] if without else []))
        if not any(turns):
            raise next(iter(failed.values()))
        return list(
            dict.fromkeys(
                auth for turn in range(max(map(len, turns))) for one in turns for auth in one[turn : turn + 1]
            )
        )

    async def _given(self, task: Task) -> tuple[dict[str, list[Credential]], dict[str, CredentialsError]]:
        """Return the matching credentials of Secrets, and the errors in Secrets that cannot be used, by namespace."""
        given: dict[str, list[Credential]] = {}
        failed: dict[str, CredentialsError] = {}
        for wanted in task.secrets:
            secret = await self._secrets.get(wanted)
            if secret is None or not image_plan.may_use(task, secret):
                continue
            namespace = image_plan.source_namespace(secret)
            found = given.setdefault(namespace, [])
            try:
                found += for_image(read_secret(secret), task.reference)
                if len(found) > _MAX_CREDENTIALS:
                    many = f"{task.reference} has more than {_MAX_CREDENTIALS} matching credentials"
                    raise CredentialsError(many)  # noqa: TRY301 - it fails the namespace like the others
            except CredentialsError as error:
                failed.setdefault(namespace, error)
                found.clear()
        return {name: found for name, found in given.items() if name not in failed}, failed

    def _record_events(self, task: Task, error: str, took: float) -> None:
        """Record events with OpenKruise's wording and spelling. [KD-41]"""
        node_image = self._store.by_key(self._key)
        if node_image is None:
            return
        regarding = reference(NODE_IMAGES, node_image)
        image = f"Image {task.key.image}:{task.key.tag}"
        if not error:
            self._recorder.event(regarding, "Normal", "PullImageSucceed", f"{image}, ecalpsedTime {duration(took)}")
            return
        for told in (*task.owners[:_MAX_EVENTS], regarding):
            self._recorder.event(told, "Warning", "PullImageFailed", f"{image} {error}")

    def _now(self) -> str:
        return rfc3339(self._clock.now())
