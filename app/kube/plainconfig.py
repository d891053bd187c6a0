"""Configurations that take nothing but the standard library: a token or a certificate, from a kubeconfig or our Pod.

The ``kubernetes`` package, which knows plugins and all other ways, costs 20 MiB and a third of a second: too much for
an agent on every node, and for a command that somebody waits for.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from app.kube.config import ClusterConfig
from app.kube.errors import ConfigError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: The kubelet renews the file long before the token ends.
TOKEN_SECONDS: Final = 60.0


class _Token:
    """A token in a file that somebody renews."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._value = ""
        self._read_at = float("-inf")

    async def authorization(self) -> str | None:
        """The header's value."""
        if time.monotonic() - self._read_at > TOKEN_SECONDS:
            try:
                self._value = self._file.read_text("ascii").strip()
            except (OSError, UnicodeError) as error:
                if not self._value:
                    raise ConfigError(f"the token in {self._file} cannot be read: {error}") from None
            self._read_at = time.monotonic()
        return f"Bearer {self._value}"

    async def renew(self) -> None:
        """Read it anew with the next request."""
        self._read_at = float("-inf")


def in_cluster(environ: Mapping[str, str], account: Path = ACCOUNT) -> ClusterConfig:
    """The service account of our Pod. Raises ``ConfigError``."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = _Token(account / "token")
    try:
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"service account of this Pod ({account}): {error}") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return ClusterConfig(
        host=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ssl_context=context,
        source="the Pod's service account",
        authorization=token.authorization,
        renew=token.renew,
    )


def read_kubeconfig(path: Path, context: str | None = None) -> ClusterConfig | None:
    """A kubeconfig whose user has a token or a certificate; None for all others, and for what cannot be read."""
    import yaml  # only here

    try:
        return _plain(yaml.safe_load(path.expanduser().read_bytes()), path.expanduser(), context)
    except (OSError, UnicodeError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError, RecursionError):
        # The whole loader says what is wrong.
        return None


def _plain(document: Mapping[str, Any], path: Path, wanted: str | None) -> ClusterConfig | None:
    context = _named(document["contexts"], wanted or document["current-context"])["context"]
    cluster = _named(document["clusters"], context["cluster"])["cluster"]
    user = _named(document["users"], context["user"])["user"] or {}
    known = {"token", "tokenFile", "client-certificate", "client-key"}
    known |= {"client-certificate-data", "client-key-data"}
    if user.keys() - known or cluster.get("proxy-url"):
        return None
    source, tls = f"kubeconfig {path}", None
    if str(cluster["server"]).startswith("https:"):
        tls = _tls(cluster, user, path.parent)
    config = ClusterConfig(
        host=str(cluster["server"]).rstrip("/"),
        ssl_context=tls,
        server_name=cluster.get("tls-server-name"),
        source=source,
        namespace=str(context.get("namespace") or ""),
    )
    if user.get("tokenFile"):
        token = _Token(path.parent / user["tokenFile"])
        return replace(config, authorization=token.authorization, renew=token.renew)
    if user.get("token"):
        value = f"Bearer {user['token']}"

        async def authorization() -> str | None:
            return value

        return replace(config, authorization=authorization)
    return config


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    file = cluster.get("certificate-authority")
    context = ssl.create_default_context(
        cafile=str(folder / file) if file and not authority else None,
        cadata=_decoded(authority).decode("ascii") if authority else None,
    )
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = user.get("client-certificate-data"), user.get("client-key-data")
    if certificate and key:
        # The standard library loads them from files only.
        with tempfile.TemporaryDirectory() as private:
            pair = Path(private, "client.pem")
            pair.touch(mode=0o600)
            pair.write_bytes(_decoded(certificate) + b"\n" + _decoded(key))
            context.load_cert_chain(pair)
    elif user.get("client-certificate"):
        context.load_cert_chain(folder / user["client-certificate"], folder / user["client-key"])
    return context


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _named(entries: Any, name: str) -> Mapping[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            found: Mapping[str, Any] = entry
            return found
    raise KeyError(name)
