"""What every namespace has: its default ServiceAccount, and the certificate of the cluster's authority."""

from __future__ import annotations

from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.controller import Controller, Watch, to_self
from app.kube.errors import AlreadyExists, Forbidden, NotFound
from app.kube.objects import ConfigMap, Namespace, ObjectMeta, Struct, decode_config_map, decode_namespace, decoder
from app.kube.reflector import Reflector
from app.kube.resources import CONFIGMAPS, NAMESPACES, SERVICEACCOUNTS, ObjectKey
from app.kube.store import Change, Store

ROOT = "kube-root-ca.crt"


class ServiceAccount(Struct, frozen=True):
    """A ServiceAccount."""

    metadata: ObjectMeta = ObjectMeta()


class Accounts:
    """The controller of what each namespace begins with; ``authority``: the PEM of the cluster's CA."""

    def __init__(self, client: Client, rng: Random, authority: str = "") -> None:
        self._client = client
        self._authority = authority
        self.namespaces: Store[Namespace] = Store()
        self.accounts: Store[ServiceAccount] = Store()
        self.config_maps: Store[ConfigMap] = Store()
        named = f"metadata.name={ROOT}"
        self._reflectors: list[Reflector[Any]] = [
            Reflector(client, NAMESPACES, self.namespaces, decode=decode_namespace, rng=rng),
            Reflector(client, SERVICEACCOUNTS, self.accounts, decode=decoder(ServiceAccount), rng=rng),
            Reflector(client, CONFIGMAPS, self.config_maps, decode=decode_config_map, rng=rng, field_selector=named),
        ]
        watches: list[Watch[Any]] = [
            Watch(self.namespaces, to_self),
            Watch(self.accounts, _keys_for_namespace),
            Watch(self.config_maps, _keys_for_namespace),
        ]
        self.controller = Controller("sandbox-accounts", client.clock, watches, self._reconcile, workers=1)

    def tasks(self) -> list[Any]:
        """The coroutines to run side by side until cancelled."""
        return [*(reflector.run() for reflector in self._reflectors), self.controller.run()]

    async def _reconcile(self, key: ObjectKey) -> None:
        namespace = self.namespaces.by_key(key)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        try:
            if self.accounts.get("default", key.name) is None:
                await self._client.create(SERVICEACCOUNTS, {"metadata": {"name": "default"}}, key.name)
            if self.config_maps.get(ROOT, key.name) is None:
                body = {"metadata": {"name": ROOT}, "data": {"ca.crt": self._authority}}
                await self._client.create(CONFIGMAPS, body, key.name)
        except AlreadyExists:
            return
        except (Forbidden, NotFound):
            return  # the namespace goes


def _keys_for_namespace(change: Change[Any]) -> tuple[ObjectKey, ...]:
    return (ObjectKey("", change.object.metadata.namespace),)
