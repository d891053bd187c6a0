"""The status of PodDisruptionBudgets: how many Pods may be evicted now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.controller import Controller, Watch, to_self
from app.kube.errors import NotFound
from app.kube.intorpercent import scaled
from app.kube.objects import decoder
from app.kube.reflector import Reflector
from app.kube.resources import ObjectKey
from app.kube.selectors import compile_selector
from app.kube.store import Change, Store, key_of
from app.sandbox.controllers.objects import PODDISRUPTIONBUDGETS, Budget
from app.sandbox.controllers.pods import is_active, is_ready
from app.sandbox.objects import Pod


def status_of(budget: Budget, pods: Sequence[Pod]) -> dict[str, Any]:
    """The counts of a budget over its Pods that are not over."""
    expected = len(pods)
    healthy = sum(is_ready(pod) and is_active(pod) for pod in pods)
    spec = budget.spec
    if spec.max_unavailable is not None:
        desired = max(0, expected - scaled(spec.max_unavailable, expected, True))
    else:
        desired = scaled(spec.min_available if spec.min_available is not None else 1, expected, True)
    allowed = max(0, healthy - desired) if expected else 0
    return {
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "observedGeneration": budget.metadata.generation,
    }


class Budgets:
    """The controller of PodDisruptionBudgets."""

    def __init__(self, client: Client, pods: Store[Pod], rng: Random) -> None:
        self._client = client
        self._pods = pods
        self.budgets: Store[Budget] = Store()
        self._reflector = Reflector(client, PODDISRUPTIONBUDGETS, self.budgets, decode=decoder(Budget), rng=rng)
        watches: list[Watch[Any]] = [Watch(self.budgets, to_self), Watch(pods, self._keys_for_pod)]
        self.controller = Controller("sandbox-budgets", client.clock, watches, self._reconcile, workers=1)

    def tasks(self) -> list[Any]:
        """The coroutines to run side by side until cancelled."""
        return [self._reflector.run(), self.controller.run()]

    def _keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        pods = [pod for pod in (change.old, change.new) if pod is not None]
        return {
            key_of(one): None
            for one in self.budgets.list(change.object.metadata.namespace)
            if any(_selects(one, pod) for pod in pods)
        }

    async def _reconcile(self, key: ObjectKey) -> None:
        budget = self.budgets.by_key(key)
        if budget is None or budget.metadata.deletion_timestamp is not None:
            return
        pods = [
            pod
            for pod in self._pods.list(key.namespace)
            if _selects(budget, pod) and pod.status.phase not in ("Succeeded", "Failed")
        ]
        status = status_of(budget, pods)
        allowed = status["disruptionsAllowed"] > 0
        if (
            all(budget.status.get(field, 0) == value for field, value in status.items())
            and "conditions" in budget.status
        ):
            return
        old = next((one for one in budget.status.get("conditions") or () if one["type"] == "DisruptionAllowed"), None)
        word = "True" if allowed else "False"
        since = old["lastTransitionTime"] if old is not None and old["status"] == word else None
        condition = {
            "type": "DisruptionAllowed",
            "status": word,
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": budget.metadata.generation,
            "lastTransitionTime": since or rfc3339(self._client.clock.now()),
        }
        body = {"metadata": {"uid": budget.metadata.uid}, "status": {**status, "conditions": [condition]}}
        try:
            await self._client.patch(PODDISRUPTIONBUDGETS, key.name, body, key.namespace, subresource="status")
        except NotFound:
            return


def _selects(budget: Budget, pod: Pod) -> bool:
    """A budget without a selector selects nothing; with an empty one everything."""
    return budget.spec.selector is not None and compile_selector(budget.spec.selector).matches(pod.metadata.labels)
