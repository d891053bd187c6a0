"""Connection settings for an API server, from kubeconfig files or from inside a Pod.

A service account, and a kubeconfig with a token or a certificate, need only the standard library. The ``kubernetes``
package reads all other kubeconfigs and runs authentication plugins. It costs 20 MiB and a third of a second, too much
for an agent on every node or an interactive command, so it is imported only when needed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from app.kube.errors import ConfigError

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

WAYS_OUT = "use --kubeconfig FILE, set KUBECONFIG, create ~/.kube/config, or run in a Pod with a service account"
#: Seconds an exec plugin may take. One that prompts for a password must not block startup forever.
EXEC_PLUGIN_TIMEOUT = 60.0
#: Exec plugin credentials are renewed this long before they expire.
EXPIRY_SKEW = timedelta(minutes=1)


async def _nothing() -> None:
    """Do nothing: used where no authorization or renewal is needed."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Connection settings for one API server. ``authorization`` runs before each request, ``renew`` after a 401."""

    #: Scheme, host and port, without a trailing slash.
    host: str
    ssl_context: ssl.SSLContext | None = None
    #: The name to verify the server's certificate against, if different from the host.
    server_name: str | None = None
    proxy: str | None = None
    #: Source of the configuration, for messages.
    source: str = ""
    #: The default namespace of the context, if it names one.
    namespace: str = ""
    authorization: Callable[[], Awaitable[str | None]] = field(default=_nothing)
    renew: Callable[[], Awaitable[None]] = field(default=_nothing)


async def load_config(
    kubeconfig: str = "", context: str | None = None, environ: Mapping[str, str] | None = None
) -> ClusterConfig:
    """Find and load the configuration.

    Tries these sources in the same order as controller-runtime: the ``kubeconfig`` argument, ``$KUBECONFIG`` (may list
    several files), the service account of this Pod, ``~/.kube/config``. Raises ``ConfigError``.
    """
    env = os.environ if environ is None else environ
    if kubeconfig:
        return await load_kubeconfig(kubeconfig, context)
    if env.get("KUBECONFIG"):
        return await load_kubeconfig(env["KUBECONFIG"], context)
    if env.get("KUBERNETES_SERVICE_HOST"):
        found = in_cluster(env)
        return replace(found, proxy=_proxy_from_environment(found.host))
    default = os.path.join(env.get("HOME", os.sep), ".kube", "config")
    if os.path.exists(default):  # noqa: ASYNC240 - once, at the start
        return await load_kubeconfig(default, context)
    raise ConfigError(f"no cluster configuration found: {WAYS_OUT}")


async def load_kubeconfig(paths: str, context: str | None = None) -> ClusterConfig:
    """Load a context (default: the current one) from one or several kubeconfig files."""
    _check_readable(paths, context)
    if os.pathsep not in paths and (found := read_kubeconfig(Path(paths), context)) is not None:
        return replace(found, proxy=_proxy_from_environment(found.host))
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException
    from kubernetes.aio.config.kube_config import KubeConfigMerger

    configuration = Configuration()
    try:
        merged = KubeConfigMerger(paths).config
        loader = _loader_class()(config_dict=merged, config_base_path=None, active_context=context)
        await loader.load_and_set(configuration)
        if not getattr(loader, "host", ""):
            raise ConfigError(f"kubeconfig {paths}: the cluster of the context has no server address")
        config = _cluster_config(configuration, f"kubeconfig {paths}", loader.renew)
        loader.ssl_context = config.ssl_context
        namespace = loader._current_context["context"].safe_get("namespace")
        return replace(config, namespace=namespace or "")
    except ConfigException as error:
        raise ConfigError(f"kubeconfig {paths}: {error}; see: kubectl --kubeconfig {paths} config view") from error
    except (TypeError, AttributeError, ValueError, KeyError) as error:
        # The package assumes that the file has the right structure.
        raise ConfigError(f"kubeconfig {paths} is not a kubeconfig ({error}); {WAYS_OUT}") from error


def _check_readable(paths: str, context: str | None) -> None:
    """Raise a clear error for problems with a file, before the ``kubernetes`` package fails on them."""
    import yaml  # imported here: not needed in a Pod

    found = False
    for path in filter(None, paths.split(os.pathsep)):
        file = Path(path).expanduser()
        if not file.exists():
            continue
        found = True
        try:
            content = yaml.safe_load(file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"kubeconfig {file} cannot be read: {error}; {WAYS_OUT}") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"kubeconfig {file} is not YAML: {error}; {WAYS_OUT}") from error
        if not isinstance(content, dict) or not isinstance(content.get("clusters"), list):
            raise ConfigError(f"kubeconfig {file} is not a kubeconfig: it lists no clusters; {WAYS_OUT}")
        if os.pathsep not in paths and (missing := _missing(content, context)):
            raise ConfigError(f"kubeconfig {file}: {missing}; see: kubectl --kubeconfig {file} config view")
    if not found:
        raise ConfigError(f"kubeconfig {paths} does not exist; {WAYS_OUT}")


def _missing(document: Mapping[str, Any], wanted: str | None) -> str:
    """Return an error for the first reference in the kubeconfig that cannot be resolved, or ''."""
    if not isinstance(document.get("contexts") or [], list):
        return ""  # The structure is invalid.
    contexts, clusters, users = (_by_name(document.get(key), key[:-1]) for key in ("contexts", "clusters", "users"))
    name = wanted or document.get("current-context")
    if not name:
        names = ", ".join(contexts) or "none"
        return f"no context is selected; set current-context or use --context; available contexts: {names}"
    if not isinstance(name, str):
        return "current-context is not the name of a context"
    if name not in contexts:
        return f"there is no context {name}; available contexts: {', '.join(contexts) or 'none'}"
    of_context = contexts[name]
    for kind, there in (("cluster", clusters), ("user", users)):
        of_kind = of_context.get(kind)
        if of_kind and not (isinstance(of_kind, str) and of_kind in there):
            return f"context {name} refers to the {kind} {of_kind}, which does not exist"
    return ""


def _by_name(entries: Any, key: str) -> Mapping[str, Mapping[str, Any]]:
    found = {}
    for one in entries if isinstance(entries, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            found[one["name"]] = one[key] if isinstance(one.get(key), dict) else {}
    return found


def _cluster_config(configuration: Configuration, source: str, renew: Callable[[], Awaitable[None]]) -> ClusterConfig:
    from kubernetes.aio.config import ConfigException

    host = configuration.host.rstrip("/")

    async def authorization() -> str | None:
        try:
            value: str | None = await configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError) as error:
            raise ConfigError(f"{source}: the credentials cannot be renewed: {error}") from error
        return value

    context = None
    if host.startswith("https"):
        try:
            context = _ssl_context(configuration)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(f"{source}: the certificates for {host} cannot be used: {error}") from error
    return ClusterConfig(
        host=host,
        ssl_context=context,
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or _proxy_from_environment(host),
        source=source,
        authorization=authorization,
        renew=renew,
    )


def _ssl_context(configuration: Configuration) -> ssl.SSLContext:
    context = _tls_context(cafile=configuration.ssl_ca_cert, verify=configuration.verify_ssl)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _tls_context(cafile: str | None, cadata: str | None = None, *, verify: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # Python 3.13 and later reject certificates without a key identifier, which kubectl and the kubelet accept.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy_from_environment(host: str) -> str | None:
    """Return the proxy from HTTPS_PROXY and NO_PROXY. Called once, since there is only one server."""
    import urllib.request  # imported here: saves 1 MiB in the node agent

    scheme, _, address = host.partition("://")
    if urllib.request.proxy_bypass(address.rpartition(":")[0] or address):
        return None
    return urllib.request.getproxies().get(scheme)


def _loader_class() -> Any:
    """Return the package's kubeconfig loader, extended so that exec plugins report errors and renew credentials.

    Created on first use, so that this module can be imported without the package.
    """
    from kubernetes.aio.config import ConfigException
    from kubernetes.aio.config.exec_provider import ExecProvider
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    class Loader(KubeConfigLoader):  # type: ignore[misc]
        """Loads one kubeconfig and keeps what is needed to run the exec plugin again."""

        _exec_expiry: datetime | None = None
        _configuration: Configuration | None = None
        #: Receives renewed client certificates; new connections use them.
        ssl_context: ssl.SSLContext | None = None

        async def load_and_set(self, configuration: Configuration) -> None:
            self._configuration = configuration
            await super().load_and_set(configuration)
            if self._user is not None and ("exec" in self._user or "tokenFile" in self._user):
                self._reload_at = datetime.now(UTC) + EXPIRY_SKEW
                configuration.refresh_api_key_hook = self._refresh

        async def load_from_exec_plugin(self) -> bool:
            """Run the plugin. The base method would log errors and continue without credentials."""
            spec = self._user["exec"]
            try:
                status = await asyncio.wait_for(ExecProvider(spec).run(), EXEC_PLUGIN_TIMEOUT)
            except TimeoutError:
                raise ConfigException(
                    f"the exec plugin {spec['command']} did not respond within {EXEC_PLUGIN_TIMEOUT:.0f} s"
                ) from None
            except OSError as error:
                raise ConfigException(f"the exec plugin {spec['command']} cannot be run: {error}") from error
            except ConfigException as error:
                raise ConfigException(f"the exec plugin {spec['command']} failed: {error}") from error
            expiry = status.get("expirationTimestamp")
            self._exec_expiry = datetime.fromisoformat(expiry) if expiry else None
            if "token" in status:
                self.token = f"Bearer {status['token']}"
            if "clientCertificateData" in status and "clientKeyData" in status:
                self.cert_file, self.key_file = _certificate_files(status)
            elif "token" not in status:
                raise ConfigException(f"the exec plugin {spec['command']} returned neither a token nor a certificate")
            return True

        async def _refresh(self, configuration: Configuration) -> None:
            """Renew credentials that are about to expire. Called before each request."""
            now = datetime.now(UTC)
            if "exec" in self._user:
                if self._exec_expiry is not None and now >= self._exec_expiry - EXPIRY_SKEW:
                    await self.renew()
            elif now >= self._reload_at:
                self._reload_at = now + EXPIRY_SKEW
                self._load_user_token()
                configuration.api_key["BearerToken"] = self.token

        async def renew(self) -> None:
            """Run the plugin again after the server rejected the credentials."""
            if self._user is None or "exec" not in self._user or self._configuration is None:
                return
            try:
                await self.load_from_exec_plugin()
            except ConfigException as error:
                raise ConfigError(str(error)) from error
            if self.ssl_context is not None and self.__dict__.get("cert_file"):
                try:
                    self.ssl_context.load_cert_chain(self.cert_file, self.key_file)
                except (ssl.SSLError, OSError) as error:
                    command = self._user["exec"]["command"]
                    raise ConfigError(f"the exec plugin {command} returned an unusable certificate: {error}") from error
            if "token" in self.__dict__:
                self._configuration.api_key["BearerToken"] = self.token

    return Loader


def _certificate_files(status: Mapping[str, str]) -> tuple[str, str]:
    from kubernetes.aio.config.kube_config import FileOrData

    def file(key: str) -> str:
        path: str = FileOrData(status, None, data_key_name=key, base64_file_content=False).as_file()
        return path

    return file("clientCertificateData"), file("clientKeyData")


# ---- configurations that need only the standard library

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Seconds for which a token is cached. The kubelet rotates the file long before the token expires.
TOKEN_SECONDS: Final = 60.0


class _Token:
    """A token read from a file that is rotated."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._value = ""
        self._read_at = float("-inf")

    async def authorization(self) -> str | None:
        if time.monotonic() - self._read_at > TOKEN_SECONDS:
            try:
                self._value = self._file.read_text("ascii").strip()
            except (OSError, UnicodeError) as error:
                if not self._value:
                    raise ConfigError(f"the token in {self._file} cannot be read: {error}") from None
            self._read_at = time.monotonic()
        return f"Bearer {self._value}"

    async def renew(self) -> None:
        """Read the file again on the next request."""
        self._read_at = float("-inf")


def in_cluster(environ: Mapping[str, str], account: Path = ACCOUNT) -> ClusterConfig:
    """Return the configuration of this Pod's service account. Raises ``ConfigError``."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = _Token(account / "token")
    try:
        context = _tls_context(cafile=str(account / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"service account of this Pod ({account}): {error}") from None
    return ClusterConfig(
        host=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ssl_context=context,
        source="the Pod's service account",
        authorization=token.authorization,
        renew=token.renew,
    )


def read_kubeconfig(path: Path, context: str | None = None) -> ClusterConfig | None:
    """Read a kubeconfig whose user has a token or a certificate. Returns None for any other or unreadable file."""
    import yaml

    try:
        return _plain(yaml.safe_load(path.expanduser().read_bytes()), path.expanduser(), context)
    except (OSError, UnicodeError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError, RecursionError):
        # The full loader reports the error.
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
    context = _tls_context(
        cafile=str(folder / file) if file and not authority else None,
        cadata=_decoded(authority).decode("ascii") if authority else None,
        verify=not cluster.get("insecure-skip-tls-verify"),
    )
    certificate, key = user.get("client-certificate-data"), user.get("client-key-data")
    if certificate and key:
        # The standard library loads certificates only from files.
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
            return cast("Mapping[str, Any]", entry)
    raise KeyError(name)
