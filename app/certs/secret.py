"""Certificates in a Secret, shared by all replicas: the first makes them, the others read them (MGR-32 … MGR-34)."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from app.certs.issue import CertificateError, CertificateSet, fault_of, from_secret_data, issue
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from app.kube.resources import SECRETS

logger = logging.getLogger(__name__)

#: How often another replica may be faster than us before something else must be wrong.
_ATTEMPTS: Final = 5


class SecretCertificates:
    """The serving certificate kept in one Secret."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        hosts: tuple[str, ...],
        renew_before: timedelta,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._hosts = hosts
        self._renew_before = renew_before

    async def ensure(self) -> CertificateSet:
        """The Secret's certificates, made or made anew where there are none or they are not sound.

        Raises KubeError if the API server does not let us.
        """
        for _ in range(_ATTEMPTS):
            try:
                live = await self._client.get(SECRETS, self._name, self._namespace)
            except NotFound:
                live = None
            try:
                return await self._create() if live is None else await self._sound(live)
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: take what it made
        raise KubeError(
            f"Secret {self._namespace}/{self._name}: changed by somebody else {_ATTEMPTS} times in a row; "
            "is another program writing it?"
        )

    async def _create(self) -> CertificateSet:
        made = issue(self._hosts, self._clock.now())
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "Opaque",
            "data": made.secret_data(),
        }
        try:
            await self._client.create(SECRETS, body, self._namespace)
        except NotFound as error:
            raise KubeError(
                f"namespace {self._namespace} does not exist: kubectl create namespace {self._namespace}, "
                f"or kubectl apply -f deploy/rbac.yaml"
            ) from error
        logger.info("Secret %s/%s created with a new certificate", self._namespace, self._name)
        return made

    async def _sound(self, live: dict[str, Any]) -> CertificateSet:
        now = self._clock.now()
        held: CertificateSet | None = None
        try:
            held = from_secret_data(live.get("data"))
            fault = fault_of(held, self._hosts, now, self._renew_before)
        except CertificateError as error:
            fault = str(error)
        if held is not None and not fault:
            return held
        made = issue(self._hosts, now, reuse_ca_of=held)
        # The resourceVersion of what was read goes along: of two replicas, one wins.
        body = {**live, "data": {**(live.get("data") or {}), **made.secret_data()}}
        await self._client.replace(SECRETS, self._name, body, self._namespace)
        logger.warning("Secret %s/%s: %s: new certificate made", self._namespace, self._name, fault)
        return made
