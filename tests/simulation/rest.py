"""Lists what keeps a run from being at rest, according to the API server and the replicas' shared values."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from app.certs.issue import CertificateError, expiry, from_secret_data
from app.certs.rotation import DEFAULT_RENEW_BEFORE
from app.kube.clock import Clock
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, PODS, SECRETS, Resource
from app.manager.settings import SECRET_NAME
from app.sandbox.apiserver.server import ApiServer
from tests.simulation import invariants
from tests.simulation.replicas import SimulatedReplica
from tests.simulation.script import NAMESPACE
from tests.simulation.users import CONFIGURATION_NAMES, CONFIGURATIONS

if TYPE_CHECKING:
    from tests.simulation.workloads.judge import Judge

Json = dict[str, Any]

#: Keys of the Secret during a change of the CA.
_UNFINISHED = ("next-ca-cert.pem", "previous-ca-cert.pem")


class Rest:
    """Lists what is left to do in a cluster with these replicas."""

    def __init__(self, api: ApiServer, replicas: Sequence[SimulatedReplica], clock: Clock, judge: Judge) -> None:
        self._api = api
        self._replicas = replicas
        self._clock = clock
        self._judge = judge
        #: What is left to do for Pods; None: unknown since the last write.
        self._pods: list[str] | None = None
        #: The Secret's version, the expiry of its certificate, and what is left to do for it.
        self._secret: tuple[str, datetime | None, list[str]] = ("", None, [])

    def wrote(self, kind: str) -> None:
        if kind == "Pod":
            self._pods = None

    def to_settle(self) -> list[str]:
        """Return what keeps the cluster from being at rest."""
        return self.at_rest() if self.in_place() else ["the webhooks are not registered"]

    def in_place(self) -> bool:
        """Return whether the webhooks are registered, every replica answers, and one leads."""
        complete = all(
            (self.stored(resource).get(CONFIGURATION_NAMES[kind]) or {}).get("webhooks")
            for kind, resource in CONFIGURATIONS.items()
        )
        return complete and all(replica.answers for replica in self._replicas) and self.leaders() == 1

    def leaders(self) -> int:
        return sum(replica.leads for replica in self._replicas)

    def at_rest(self) -> list[str]:
        return [*self._certificates_to_do(), *self._bundles_to_do(), *self.pods_to_do()]

    def pods_to_do(self) -> list[str]:
        """Return what Pods and workloads still wait for."""
        if self._pods is None:
            pods = [found for found in self.stored(PODS).values() if found["metadata"].get("namespace") == NAMESPACE]
            self._pods = [*invariants.pods_are_ready(pods)]
        return [*self._pods, *self._judge.at_rest(self._clock.now())]

    def _certificates_to_do(self) -> list[str]:
        secret = self.stored(SECRETS).get(SECRET_NAME)
        if secret is None:
            return [f"Secret {SECRET_NAME} does not exist"]
        version = secret["metadata"]["resourceVersion"]
        if version != self._secret[0]:
            self._secret = (version, *_read(secret["data"]))
        _, ends, unfinished = self._secret
        if ends is None:
            return unfinished
        due = ends < self._clock.now() + DEFAULT_RENEW_BEFORE
        return [f"Secret {SECRET_NAME}: its certificate ends at {ends}", *unfinished] if due else unfinished

    def _bundles_to_do(self) -> list[str]:
        """Return the webhooks and CRDs that lack the CA bundle of the replicas."""
        boards = [replica.shared.certificate.read() for replica in self._replicas]
        wanted = {base64.b64encode(board.ca_bundle).decode() for board in boards if board is not None}
        carried = {
            entry["name"]: entry["clientConfig"].get("caBundle") or ""
            for resource in CONFIGURATIONS.values()
            for live in self._api.objects(resource)
            for entry in live.get("webhooks") or ()
        }
        for definition in self._api.objects(CUSTOMRESOURCEDEFINITIONS):
            conversion = definition["spec"].get("conversion") or {}
            if conversion.get("strategy") == "Webhook":
                client = conversion.get("webhook", {}).get("clientConfig", {})
                carried[definition["metadata"]["name"]] = client.get("caBundle") or ""
        return [
            f"{name} has a different CA bundle than the replicas"
            for name, bundle in carried.items()
            if {bundle} != wanted
        ]

    def stored(self, resource: Resource) -> dict[str, Json]:
        return {obj["metadata"]["name"]: obj for obj in self._api.objects(resource)}


def _read(data: Mapping[str, str]) -> tuple[datetime | None, list[str]]:
    """Return the expiry of a Secret's certificate (None: no valid one), and what is left to do."""
    try:
        ends = expiry(from_secret_data(data).cert)
    except CertificateError as error:
        return None, [f"Secret {SECRET_NAME}: {error}"]
    return ends, [f"Secret {SECRET_NAME} has {key}" for key in _UNFINISHED if key in data]
