"""What controllers of Pods with a template share: which objects they watch, and what comes before each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.controller import Controller, Result, Watch, to_self
from app.kube.errors import NotFound
from app.kube.objects import decoder
from app.kube.reflector import Reflector
from app.kube.resources import ObjectKey, Resource
from app.kube.selectors import compile_selector
from app.kube.store import Store
from app.sandbox.controllers.objects import Workload
from app.sandbox.controllers.pods import PodControl, matching_workloads
from app.sandbox.objects import Pod


class WorkloadController:
    """Subclasses say in :meth:`reconcile` what is done with the Pods of one object."""

    def __init__(
        self,
        client: Client,
        pods: Store[Pod],
        resource: Resource,
        rng: Random,
        *,
        workers: int,
        indexes: Mapping[str, Callable[[Workload], Iterable[str]]] | None = None,
        others: Sequence[Watch[Any]] = (),
    ) -> None:
        self.client = client
        self.sets: Store[Workload] = Store(indexes)
        self.control = PodControl(client, pods, resource, rng)
        self._reflector = Reflector(client, resource, self.sets, decode=decoder(Workload), rng=rng)
        keys = matching_workloads(self.sets, resource, lambda one: compile_selector(one.spec.selector))
        watches: list[Watch[Any]] = [Watch(self.sets, to_self), Watch(pods, keys), *others]
        self.controller = Controller(
            f"sandbox-{resource.plural}", client.clock, watches, self._reconcile, workers=workers
        )

    def tasks(self) -> list[Any]:
        """The coroutines to run side by side until cancelled."""
        return [self._reflector.run(), self.controller.run()]

    async def reconcile(self, key: ObjectKey, found: Workload, pods: Sequence[Pod]) -> Result | None:
        """One pass over an object and all Pods that are its own, those that are ending too."""
        raise NotImplementedError

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        found = self.sets.by_key(key)
        if found is None:
            self.control.forget(key)
            return None
        if seconds := self.control.waits(key):
            return Result(requeue_after=seconds)
        pods = await self.control.claim(found, compile_selector(found.spec.selector))
        try:
            return await self.reconcile(key, found, pods)
        except NotFound:  # it went in the meantime
            return None
