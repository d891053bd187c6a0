"""Settings of a manager process: flags and environment, validated and typed. Pure."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from app.admission.configurations import Endpoint, ServiceEndpoint, UrlEndpoint
from app.api import names
from app.api.crd import WEBHOOK_SERVICE
from app.certs.issue import LIFETIME
from app.certs.rotation import DEFAULT_RENEW_BEFORE
from app.kube.leases import LeaseTimes
from app.manager.flags import Flags
from app.manager.gates import FeatureGateError, FeatureGates, parse_gates
from app.manager.serving import StartError

logger = logging.getLogger(__name__)

SECRET_NAME: Final = "kruise-webhook-certs"  # noqa: S105 - a name
_DAYS: Final = {"d": 1, "m": 30, "y": 365}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a manager process."""

    flags: Flags
    gates: FeatureGates
    own_namespace: str
    webhook_host: str
    webhook_port: int
    service_name: str
    secret_name: str
    #: Folder for certificates instead of a Secret (WEBHOOK_CERT_WRITER=fs); None uses the Secret.
    certificate_folder: Path | None
    renew_before: timedelta
    policies: Path | None
    #: None if this replica reconciles without leader election.
    election: LeaseTimes | None

    @property
    def external_certificates(self) -> bool:
        """Whether certificates and CA bundles are managed externally. [MGR-35]"""
        return self.gates.enabled("EnableExternalCerts")

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        """Host names by which the API server reaches the manager. [MGR-30]"""
        return (self.webhook_host or f"{self.service_name}.{self.own_namespace}.svc",)

    @property
    def bind_host(self) -> str:
        """Address the admission service listens on: the configured one, else loopback if webhooks are registered
        there, else all interfaces (an empty string)."""
        if self.flags.text("webhook-bind-address"):
            return self.flags.text("webhook-bind-address")
        if self.webhook_host in _LOOPBACK:
            return "127.0.0.1" if self.webhook_host == "localhost" else self.webhook_host
        return ""

    @property
    def among_others(self) -> bool:
        """Whether a Service or load balancer routes reviews to this replica; both take time to notice that it is
        stopping."""
        own = self.flags.text("webhook-bind-address")
        return self.webhook_host not in _LOOPBACK or own not in ("", self.webhook_host)

    def endpoint(self, port: int) -> Endpoint:
        """Return the endpoint through which the API server reaches the listening port. [MGR-42]"""
        if self.webhook_host:
            return UrlEndpoint(self.webhook_host, port)
        return ServiceEndpoint(self.service_name, self.own_namespace)


def read_settings(flags: Flags, environ: Mapping[str, str]) -> Settings:
    """Read the settings. A flag overrides the corresponding environment variable. Raises StartError."""
    try:
        gates = parse_gates(flags.text("feature-gates"), environ.get("CUSTOM_RESOURCE_ENABLE", ""))
    except FeatureGateError as error:
        raise StartError(str(error)) from None
    writer = environ.get("WEBHOOK_CERT_WRITER", "")
    if writer not in ("", "secret", "fs"):
        raise StartError(f"WEBHOOK_CERT_WRITER: expected secret or fs, got {writer!r}")
    folder = environ.get("WEBHOOK_CERT_DIR") or "/tmp/kruise-webhook-certs"  # noqa: S108 - OpenKruise's default
    if not (flags.boolean("controllers") or flags.boolean("webhooks")):
        raise StartError("--controllers=false and --webhooks=false are mutually exclusive")
    policies = flags.text("policies")
    if policies and not Path(policies).exists():
        raise StartError(f"--policies: {policies} does not exist")
    return Settings(
        flags=flags,
        gates=gates,
        own_namespace=environ.get("POD_NAMESPACE") or names.MANAGER_NAMESPACE,
        webhook_host=flags.text("webhook-host") or environ.get("WEBHOOK_HOST", ""),
        webhook_port=_port(flags, environ),
        service_name=environ.get("SERVICE_NAME") or WEBHOOK_SERVICE,
        secret_name=environ.get("SECRET_NAME") or SECRET_NAME,
        certificate_folder=Path(folder) if writer == "fs" else None,
        renew_before=renew_before(environ.get("CERTS_RENEW_BEFORE", "")),
        policies=Path(policies) if policies else None,
        election=_election(flags),
    )


def renew_before(text: str) -> timedelta:
    """Parse ``CERTS_RENEW_BEFORE``: a number with d, m (30 days) or y (365).

    Anything else means 180 days, with a warning. A value not shorter than a certificate's lifetime is invalid too: it
    would cause repeated renewals.
    """
    match = re.fullmatch(r"0*([1-9][0-9]{0,4})([dmy])", text.strip(), re.ASCII)
    if match is not None and (before := timedelta(days=int(match[1]) * _DAYS[match[2]])) < LIFETIME:
        return before
    if text:
        logger.warning(
            (
                "CERTS_RENEW_BEFORE: expected a number with d, m or y, less than the %d days of a certificate, got %r: "
                "renewing %d days before expiry"
            ),
            LIFETIME.days,
            text,
            DEFAULT_RENEW_BEFORE.days,
        )
    return DEFAULT_RENEW_BEFORE


def _election(flags: Flags) -> LeaseTimes | None:
    if not flags.boolean("enable-leader-election"):
        return None
    try:
        return LeaseTimes(
            lease_duration=flags.seconds("leader-election-lease-duration"),
            renew_deadline=flags.seconds("leader-election-renew-deadline"),
            retry_period=flags.seconds("leader-election-retry-period"),
        )
    except ValueError as error:
        raise StartError(f"--leader-election-…: {error}") from None


def _port(flags: Flags, environ: Mapping[str, str]) -> int:
    text = environ.get("WEBHOOK_PORT", "")
    if "webhook-port" in flags.given or not text:
        return flags.integer("webhook-port")
    if re.fullmatch(r"[0-9]{1,5}", text) is None or int(text) > 65535:
        raise StartError(f"WEBHOOK_PORT: expected a port, 0 to 65535, got {text!r}")
    return int(text)
