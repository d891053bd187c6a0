"""The synchronous client: each call blocks until its response arrives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from app.api.model import KubeObject
from app.client.cluster import AsyncCluster
from app.kube.store import Change
from app.kube.wire import Transport

T = TypeVar("T", bound=KubeObject)
R = TypeVar("R")


class Cluster:
    """A connection to a cluster for code without an event loop; see AsyncCluster. Threads can share it.

    with Cluster() as cluster:
        cluster.apply({"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", ...})
        web = cluster.wait_for(CloneSet, "web", rolled_out, seconds=300)
    """

    def __init__(self, kubeconfig: str = "", context: str = "", *, transport: Transport | None = None) -> None:
        """Use this kubeconfig and context. The default is kubectl's configuration or, in a Pod, its service account."""
        self._cluster = AsyncCluster(kubeconfig, context, transport=transport)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pykruise", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait(self._cluster.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait(self._cluster.__aexit__(kind, error, trace))
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C cancels the pending call.
            raise

    def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """Return one object. The namespace defaults to that of the context."""
        return self._wait(self._cluster.get(kind, name, namespace))

    def list(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        all_namespaces: bool = False,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[T]:
        """Return all objects of one namespace or of all namespaces."""
        return self._wait(
            self._cluster.list(
                kind,
                namespace,
                all_namespaces=all_namespaces,
                label_selector=label_selector,
                field_selector=field_selector,
            )
        )

    @contextmanager
    def watch(
        self, kind: type[T], namespace: str = "", *, all_namespaces: bool = False, label_selector: str = ""
    ) -> Iterator[Iterator[Change[T]]]:
        """Yield an iterator over changes; each step blocks until the next change."""
        watching = self._cluster.watch(kind, namespace, all_namespaces=all_namespaces, label_selector=label_selector)
        changes = self._wait(watching.__aenter__())

        def following() -> Iterator[Change[T]]:
            while True:
                yield self._wait(anext(changes))  # type: ignore[arg-type]

        try:
            yield following()
        finally:
            self._wait(watching.__aexit__(None, None, None))

    def wait_for(
        self, kind: type[T], name: str, condition: Callable[[T], bool], namespace: str = "", *, seconds: float = 60.0
    ) -> T:
        """Wait until ``condition`` returns True for the object. Raises NotDoneError after ``seconds``."""
        return self._wait(self._cluster.wait_for(kind, name, condition, namespace, seconds=seconds))

    def apply(
        self, obj: T | Mapping[str, Any], namespace: str = "", *, force: bool = False, dry_run: bool = False
    ) -> KubeObject:
        """Apply a model or a manifest server-side; ``force`` takes over fields owned by other field managers."""
        return self._wait(self._cluster.apply(obj, namespace, force=force, dry_run=dry_run))

    def create(self, obj: T | Mapping[str, Any], namespace: str = "", *, dry_run: bool = False) -> KubeObject:
        """Create an object. Raises AlreadyExists if an object with that name exists."""
        return self._wait(self._cluster.create(obj, namespace, dry_run=dry_run))

    def patch(
        self, kind: type[T], name: str, patch: Mapping[str, Any], namespace: str = "", *, dry_run: bool = False
    ) -> T:
        """Apply a JSON merge patch (RFC 7386): null removes a field, and lists are replaced."""
        return self._wait(self._cluster.patch(kind, name, patch, namespace, dry_run=dry_run))

    def delete(self, kind: type[T], name: str, namespace: str = "", *, orphan: bool = False) -> None:
        """Delete an object; ``orphan`` keeps its dependents."""
        self._wait(self._cluster.delete(kind, name, namespace, orphan=orphan))
