"""The asynchronous client: typed access to every kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from random import Random
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import orjson

from app.api.kind import KindDefinition
from app.api.model import KubeObject
from app.kube.client import Client, PatchType
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.reflector import Reflector
from app.kube.resources import ObjectKey, Resource
from app.kube.store import Change, Store, key_of
from app.kube.transport import AiohttpTransport
from app.kube.wire import Transport
from app.manager.features import features, kinds


@cache
def definition(model: type[KubeObject]) -> KindDefinition:
    """Return the kind whose stored version is this model. Raises TypeError for any other class."""
    found = next((kind for kind in kinds() if kind.hub.model is model), None)
    if found is None:
        raise TypeError(f"{model.__name__} is not the model of a pykruise kind in its stored version")
    return found


T = TypeVar("T", bound=KubeObject)

#: Field manager name recorded in managedFields.
FIELD_MANAGER: Final = "pykruise-client"


class NotDoneError(TimeoutError):
    """The condition was not met in time. The message includes the object's last known status."""


def rolled_out(obj: KubeObject) -> bool:
    """Return whether an object's rollout is complete, as ``pykruise rollout status`` reports it.

    Raises TypeError for a kind without rollouts and RuntimeError for a rollout that has failed.
    """
    kind = definition(type(obj))
    commands = next((one for declared in features() for one in declared.commands() if one.kind is kind), None)
    if commands is None or commands.progress is None:
        raise TypeError(f"{kind.kind} has no rollout")
    progress = commands.progress(obj.to_dict())
    if progress.failed:
        raise RuntimeError(f"{kind.kind} {obj.name}: {progress.failed}")
    return progress.done


class AsyncCluster:
    """A connection to a cluster.

    All methods raise a KubeError (NotFound, Forbidden, Invalid, ...) when the API server rejects the request.

    Objects are returned as models of the stored version. To change an object, pass only the fields to change to
    ``apply`` or ``patch``; do not write back a model that was read.

        async with AsyncCluster() as cluster:
            await cluster.patch(CloneSet, "web", {"spec": {"replicas": 5}}, namespace="shop")
            await cluster.wait_for(CloneSet, "web", rolled_out, namespace="shop", seconds=300)
    """

    def __init__(self, kubeconfig: str = "", context: str = "", *, transport: Transport | None = None) -> None:
        """Use this kubeconfig and context. The default is kubectl's configuration or, in a Pod, its service account."""
        self._kubeconfig, self._context = kubeconfig, context
        self._transport = transport
        self._connected: Client | None = None
        self._namespace = "default"

    async def __aenter__(self) -> Self:
        if self._transport is None:
            config = await load_config(self._kubeconfig, self._context or None)
            self._transport = AiohttpTransport(config)
            self._namespace = config.namespace or "default"
        self._connected = Client(self._transport, SystemClock(), user_agent="pykruise-client")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connected = None
        if self._transport is not None:
            await self._transport.close()

    @property
    def _client(self) -> Client:
        if self._connected is None:
            raise RuntimeError("use the cluster inside its with block")
        return self._connected

    def _where(self, resource: Resource, namespace: str) -> str:
        return (namespace or self._namespace) if resource.namespaced else ""

    # ---- reading

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """Return one object. The namespace defaults to that of the context."""
        resource = definition(kind).resource()
        return await self._client.get(resource, name, self._where(resource, namespace), decode=_decoder(kind))

    async def list(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        all_namespaces: bool = False,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[T]:
        """Return all objects of one namespace or of all namespaces."""
        resource = definition(kind).resource()
        where = "" if all_namespaces else self._where(resource, namespace)
        found = await self._client.list(
            resource, where, label_selector=label_selector, field_selector=field_selector, decode=_decoder(kind)
        )
        return list(found.items)

    @asynccontextmanager
    async def watch(
        self, kind: type[T], namespace: str = "", *, all_namespaces: bool = False, label_selector: str = ""
    ) -> AsyncIterator[AsyncIterator[Change[T]]]:
        """Yield changes while the block runs: first every existing object as added, then each change.

        Lost connections are reopened. A slow reader receives several changes to one object as a single change.
        """
        resource = definition(kind).resource()
        where = "" if all_namespaces else self._where(resource, namespace)
        store: Store[T] = Store()
        pending = _Pending[T]()
        store.subscribe(pending.add)
        reflector = Reflector(
            self._client,
            resource,
            store,
            decode=_decoder(kind),
            rng=Random(),
            namespace=where,
            label_selector=label_selector,
        )
        following = asyncio.create_task(reflector.run())
        try:
            yield pending.changes()
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def wait_for(
        self, kind: type[T], name: str, condition: Callable[[T], bool], namespace: str = "", *, seconds: float = 60.0
    ) -> T:
        """Wait until ``condition`` returns True for the object, and return the object.

        The object does not have to exist yet. Raises NotDoneError after ``seconds``.
        """
        last: T | None = None
        try:
            async with asyncio.timeout(seconds), self.watch(kind, namespace) as changes:
                async for change in changes:
                    if change.object.name != name:
                        continue
                    last = change.new
                    if last is not None and condition(last):
                        return last
        except TimeoutError:
            pass
        told = f"its status was {last.to_dict().get('status')}" if last is not None else "the object did not exist"
        raise NotDoneError(f"{definition(kind).kind} {name}: condition not met within {seconds:g} s; {told}")

    # ---- writing

    async def apply(
        self, obj: T | Mapping[str, Any], namespace: str = "", *, force: bool = False, dry_run: bool = False
    ) -> KubeObject:
        """Apply a model or a manifest server-side; ``force`` takes over fields owned by other field managers."""
        kind, body = _body(obj)
        resource = definition(kind).resource()
        where = self._where(resource, namespace or body["metadata"].get("namespace", ""))
        return await self._client.patch(
            resource,
            body["metadata"]["name"],
            body,
            where,
            kind=PatchType.APPLY,
            field_manager=FIELD_MANAGER,
            force=force,
            dry_run=dry_run,
            decode=_decoder(kind),
        )

    async def create(self, obj: T | Mapping[str, Any], namespace: str = "", *, dry_run: bool = False) -> KubeObject:
        """Create an object. Raises AlreadyExists if an object with that name exists."""
        kind, body = _body(obj)
        resource = definition(kind).resource()
        where = self._where(resource, namespace or body["metadata"].get("namespace", ""))
        return await self._client.create(
            resource, body, where, field_manager=FIELD_MANAGER, dry_run=dry_run, decode=_decoder(kind)
        )

    async def patch(
        self, kind: type[T], name: str, patch: Mapping[str, Any], namespace: str = "", *, dry_run: bool = False
    ) -> T:
        """Apply a JSON merge patch (RFC 7386): null removes a field, and lists are replaced."""
        resource = definition(kind).resource()
        return await self._client.patch(
            resource,
            name,
            patch,
            self._where(resource, namespace),
            field_manager=FIELD_MANAGER,
            dry_run=dry_run,
            decode=_decoder(kind),
        )

    async def delete(self, kind: type[T], name: str, namespace: str = "", *, orphan: bool = False) -> None:
        """Delete an object; ``orphan`` keeps its dependents."""
        resource = definition(kind).resource()
        await self._client.delete(
            resource,
            name,
            self._where(resource, namespace),
            propagation_policy="Orphan" if orphan else "Background",
        )


class _Pending(Generic[T]):
    """Changes that have not been read yet, at most one per object."""

    def __init__(self) -> None:
        self._changes: dict[ObjectKey, Change[T]] = {}
        self._wake = asyncio.Event()

    def add(self, seen: Change[T]) -> None:
        key = key_of(seen.object)
        before = self._changes.pop(key, None)
        change = Change(before.old if before is not None else seen.old, seen.new)
        if change.old is not None or change.new is not None:
            self._changes[key] = change
        self._wake.set()

    async def changes(self) -> AsyncIterator[Change[T]]:
        while True:
            while not self._changes:
                self._wake.clear()
                await self._wake.wait()
            yield self._changes.pop(next(iter(self._changes)))


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    return lambda raw: kind.model_validate(orjson.loads(raw))


def _body(obj: KubeObject | Mapping[str, Any]) -> tuple[type[KubeObject], dict[str, Any]]:
    """Return the model and the JSON of an object to write."""
    if isinstance(obj, KubeObject):
        kind = definition(type(obj))
        body = obj.to_dict() | {"apiVersion": f"{kind.group}/{kind.hub.name}", "kind": kind.kind}
        model: type[KubeObject] = type(obj)
    else:
        body = dict(obj)
        found = next((one for declared in features() for one in declared.kinds if one.kind == body.get("kind")), None)
        wanted = f"{found.group}/{found.hub.name}" if found is not None else ""
        if found is None or body.get("apiVersion") != wanted:
            said = f"{body.get('apiVersion')} {body.get('kind')}"
            raise TypeError(f"{said}: is not a pykruise kind" + (f"; use {wanted}" if wanted else ""))
        model = found.hub.model
    if not (body.get("metadata") or {}).get("name"):
        raise ValueError("metadata.name: is required")
    return model, body
