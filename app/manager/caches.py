"""The caches of a process: what the slices that run here watch, and the reflectors that fill them.

Processes that answer reviews watch what admission needs; the process that writes to the cluster watches everything.
So a process that serves webhooks alone holds no Pods.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.reflector import Reflector
from app.kube.reflector_metrics import ReflectorMetrics
from app.kube.resources import Resource
from app.kube.store import Store
from app.manager.slices import slices
from app.slices import Scope, Slice, Stores, Watched
from app.slices.options import Enabled
from app.slices.watched import agents_namespace, merged


class Caches:
    """Stores and the reflectors that fill them.

    ``namespace``: the only one to watch where objects are watched at all, or empty for all.
    """

    def __init__(
        self,
        own_namespace: str,
        namespace: str = "",
        enabled: Enabled = lambda _gate: True,
        declared: Iterable[Slice] | None = None,
        absent: Callable[[], Container[str]] = tuple,
    ) -> None:
        """``absent`` returns the names of the CustomResourceDefinitions that are not installed."""
        chosen = tuple(slices() if declared is None else declared)
        self._own_namespace = own_namespace
        self._namespace = namespace
        self._absent = absent
        judging = [one for part in chosen for one in part.watched_for_admission(enabled)]
        controlling = [one for part in chosen for one in part.watched_for_controllers(enabled)]
        self.stores = Stores([*judging, *controlling])
        self._for_admission = merged(judging).keys()

    @property
    def by_name(self) -> Mapping[str, Store[Any]]:
        """All stores, by what a person calls them."""
        return self.stores.by_name

    @property
    def for_admission(self) -> Mapping[str, Store[Any]]:
        """The stores that must be filled before a review can be judged, by what a person calls them."""
        declared = self.stores.declared
        return {declared[key].name: self.stores(declared[key]) for key in self._for_admission}

    @property
    def resources_for_admission(self) -> Sequence[Resource]:
        """The resources in the stores that admission reads."""
        return [self.stores.declared[key].resource for key in self._for_admission]

    def admission_reflectors(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Sequence[Reflector[Any]]:
        """What fills the stores that admission reads, to be run as tasks."""
        declared = self.stores.declared
        return [self._reflector(declared[key], client, rng, metrics) for key in self._for_admission]

    def controller_reflectors(self, client: Client, rng: Random, metrics: ReflectorMetrics) -> Sequence[Reflector[Any]]:
        """What fills the stores that only controllers read."""
        return [
            self._reflector(one, client, rng, metrics)
            for key, one in self.stores.declared.items()
            if key not in self._for_admission
        ]

    def _reflector(
        self, watched: Watched[Any], client: Client, rng: Random, metrics: ReflectorMetrics
    ) -> Reflector[Any]:
        places = {
            Scope.OWN: self._own_namespace,
            Scope.AGENTS: agents_namespace(),
            Scope.CLUSTER: "",
            Scope.WATCHED: self._namespace,
        }
        return Reflector(
            client,
            watched.resource,
            self.stores(watched),
            decode=watched.decode,
            rng=rng,
            namespace=places[watched.scope],
            label_selector=watched.label_selector,
            field_selector=watched.field_selector,
            keep=watched.keep,
            metrics=metrics,
            absent=lambda: watched.resource.definition_name in self._absent(),
        )
