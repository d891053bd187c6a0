"""Registry credentials from pull secrets and credential provider plugins."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from app.daemon.cri.types import Auth
from app.kube.clock import Clock
from app.kube.images import parse_image
from app.kube.objects import Secret, Struct

# Registry credentials: read from Secrets and matched to images. Pure. Follows the kubelet, so that a Secret works for a
# pre-pull exactly if it works for a Pod. [KD-36, KD-37]

CONFIG_JSON: Final = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")
CONFIG_FILE: Final = ("kubernetes.io/dockercfg", ".dockercfg")
_DOCKER_HUB: Final = "docker.io"
_DEFAULT_REGISTRY: Final = "index.docker.io"
#: Longest registry key and longest label in it; longer keys are ignored.
_MAX_KEY: Final = 1024
_MAX_LABEL: Final = 255
#: Larger Secrets are rejected. Any tenant may write a Secret of 1 MiB with 100,000 registries. [KD-104]
MAX_SECRET_BYTES: Final = 256 * 1024
MAX_REGISTRIES: Final = 256


class CredentialsError(ValueError):
    """Credentials that cannot be read. The message never contains any part of them."""


class Entry(Struct, frozen=True):
    """Credentials of one registry."""

    username: str | None = None
    password: str | None = None
    auth: str | None = None


Entries: TypeAlias = dict[str, Entry | None] | None


class _Config(Struct, frozen=True):
    auths: Entries = None


#: null is treated as absent.
_decode_config: Final = msgspec.json.Decoder(_Config | None).decode
_decode_file: Final = msgspec.json.Decoder(Entries).decode


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pattern of the images that a key covers: ``*.example.com:5000/team``."""

    host: tuple[str, ...]
    port: str
    path: str

    @classmethod
    def of(cls, key: str) -> Pattern | None:
        """Parse a key; None if it is not a valid pattern."""
        if len(key) > _MAX_KEY:
            return None
        text = key if key.startswith(("http://", "https://")) else f"https://{key}"
        try:
            parts = urlsplit(text)
        except ValueError:
            return None
        if not parts.netloc or "@" in parts.netloc:
            return None
        host, _, port = parts.netloc.partition(":") if not parts.netloc.startswith("[") else (parts.netloc, "", "")
        path = parts.path
        for version in ("/v1/", "/v2/"):
            if path.startswith(version):
                path = path[3:]
        labels = tuple(host.split("."))
        return cls(labels, port, path.rstrip("/")) if max(map(len, labels)) <= _MAX_LABEL else None

    @property
    def text(self) -> str:
        """The key in canonical form."""
        return ".".join(self.host) + (f":{self.port}" if self.port else "") + self.path

    def matches(self, repository: str) -> bool:
        """Return whether the pattern matches the repository (registry included)."""
        registry, _, rest = repository.partition("/")
        host, _, port = registry.partition(":")
        labels = host.split(".")
        return (
            port == self.port
            and len(labels) == len(self.host)
            and all(fnmatchcase(label, glob) for label, glob in zip(labels, self.host, strict=True))
            and f"/{rest}".startswith(self.path)
        )


@dataclass(frozen=True, slots=True)
class Credential:
    """Credentials and the images they are valid for."""

    pattern: Pattern
    auth: Auth


def read_secret(secret: Secret) -> list[Credential]:
    """Return the credentials in a Secret; none for other Secret types. Raises :class:`CredentialsError`."""
    name = f"{secret.metadata.namespace}/{secret.metadata.name}"
    if secret.type not in (CONFIG_JSON[0], CONFIG_FILE[0]):
        return []
    if (size := sum(map(len, secret.data.values()))) > MAX_SECRET_BYTES:
        raise CredentialsError(f"Secret {name} is ignored: it holds {size} bytes, more than {MAX_SECRET_BYTES}")
    try:
        if secret.type == CONFIG_JSON[0]:
            config = _decode_config(secret.data.get(CONFIG_JSON[1], b""))
            entries = config.auths if config is not None else None
        else:
            entries = _decode_file(secret.data.get(CONFIG_FILE[1], b""))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise CredentialsError(f"Secret {name} of type {secret.type} cannot be read") from None
    return credentials(entries or {}, f"Secret {name}")


def credentials(entries: Mapping[str, Entry | None], where: str) -> list[Credential]:
    """Convert entries by registry to credentials. Raises :class:`CredentialsError`."""
    if len(entries) > MAX_REGISTRIES:
        raise CredentialsError(f"{where} is ignored: it lists {len(entries)} registries, more than {MAX_REGISTRIES}")
    found = []
    for key, entry in entries.items():
        pattern = Pattern.of(key)
        if pattern is None:
            continue
        entry = entry if entry is not None else Entry()
        username, password = entry.username or "", entry.password or ""
        if entry.auth:
            username, password = _decoded(entry.auth, where)
        found.append(Credential(pattern, Auth(username, password)))
    return found


def _decoded(text: str, where: str) -> tuple[str, str]:
    # As in the kubelet, lines may be wrapped and padding is optional.
    text = text.replace("\r", "").replace("\n", "")
    if not text.endswith("="):
        text += "=" * (-len(text) % 4)
    try:
        username, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeError, ValueError):
        username, colon, password = "", "", ""
    if not colon:
        raise CredentialsError(f"{where}: the auth of a registry is not base64 of user:password")
    return username, password.rstrip("\x00")


def for_image(known: Iterable[Credential], image: str) -> list[Credential]:
    """Return the credentials that match an image, most specific first. [KD-36]"""
    parsed = parse_image(image)
    if parsed is None:
        return []
    is_hub = parsed.repository.startswith(f"{_DOCKER_HUB}/")
    matching: list[tuple[bool, str, Credential]] = []
    for one in known:
        text = one.pattern.text
        if one.pattern.matches(parsed.repository):
            matching.append((True, text, one))
        elif is_hub and text == _DEFAULT_REGISTRY:
            matching.append((False, text, one))
    matching.sort(key=lambda found: found[:2], reverse=True)
    return [one for _, _, one in matching]


def lookup(known: Iterable[Credential], image: str) -> list[Auth]:
    """Return the distinct credentials to try for an image, in order. [KD-36]"""
    return list(dict.fromkeys(one.auth for one in for_image(known, image)))


def matches_any(patterns: Iterable[str], image: str) -> bool:
    """Return whether an image matches any of a plugin's patterns."""
    parsed = parse_image(image)
    if parsed is None:
        return False
    found = (Pattern.of(text) for text in patterns)
    return any(pattern is not None and pattern.matches(parsed.repository) for pattern in found)


def without_credentials(text: str, used: Iterable[Auth]) -> str:
    """Return ``text`` with credentials masked: registries and runtimes may repeat them in errors."""
    for auth in used:
        both = f"{auth.username}:{auth.password}"
        for secret in (auth.password, base64.b64encode(both.encode()).decode()):
            if len(secret) > 2:
                text = text.replace(secret, "***")
    return text


# Credential provider plugins, as in the kubelet: a configuration lists the images of each plugin, and the plugins are
# programs that read a request from standard input. [KD-36]  Source:
# https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/

logger = logging.getLogger(__name__)

_SECONDS: Final = 60.0
_END_SECONDS: Final = 5.0
_PIECE: Final = 64 * 1024
_MAX_ANSWER: Final = 1024 * 1024
_MAX_CACHED: Final = 512
_VERSIONS: Final = tuple(f"credentialprovider.kubelet.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class PluginConfigError(ValueError):
    """The plugin configuration is invalid."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin program and the images it serves."""

    name: str
    match_images: tuple[str, ...]
    cache_seconds: float
    api_version: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


class _Response(Struct, frozen=True):
    kind: str = ""
    cache_key_type: str = ""
    cache_duration: str | None = None
    auth: Entries = None


_decode_response: Final = msgspec.json.Decoder(_Response).decode


def read_config(document: Any) -> list[Plugin]:
    """Return the plugins of a parsed configuration file. Raises :class:`PluginConfigError`."""
    if not isinstance(document, dict) or document.get("kind") != "CredentialProviderConfig":
        raise PluginConfigError("not a CredentialProviderConfig")
    providers = document.get("providers")
    if not isinstance(providers, list) or not providers:
        raise PluginConfigError("providers: at least one is required")
    return [_plugin(provider, f"providers[{number}]") for number, provider in enumerate(providers)]


def _plugin(provider: Any, path: str) -> Plugin:
    fields = provider if isinstance(provider, dict) else {}
    name, version, images = fields.get("name"), fields.get("apiVersion"), fields.get("matchImages")
    if not isinstance(name, str) or not name or "/" in name or name in (".", "..") or " " in name:
        raise PluginConfigError(f"{path}.name: must be the name of a file in the plugin directory")
    if version not in _VERSIONS:
        raise PluginConfigError(f"{path}.apiVersion: must be one of {', '.join(_VERSIONS)}")
    if not isinstance(images, list) or not images or not all(_is_pattern(image) for image in images):
        raise PluginConfigError(f"{path}.matchImages: must be a list of registries such as *.example.com")
    arguments, environment = fields.get("args") or [], fields.get("env") or []
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise PluginConfigError(f"{path}.args: must be a list of strings")
    if not isinstance(environment, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str)
        for one in environment
    ):
        raise PluginConfigError(f"{path}.env: must be a list of name and value")
    seconds = duration(fields.get("defaultCacheDuration"))
    if seconds is None:
        raise PluginConfigError(f"{path}.defaultCacheDuration: must be a duration such as 12h")
    pairs = tuple((one["name"], one["value"]) for one in environment)
    return Plugin(name, tuple(images), seconds, version, tuple(arguments), pairs)


def _is_pattern(text: Any) -> bool:
    return isinstance(text, str) and Pattern.of(text) is not None


def duration(text: Any) -> float | None:
    """Parse a Go duration into seconds; None if it is invalid."""
    if text in ("0", 0):
        return 0.0
    if not isinstance(text, str) or not text or _DURATION.sub("", text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


class Plugins:
    """The node's plugins, run on demand. Answers are cached for as long as the plugins allow."""

    def __init__(self, plugins: Sequence[Plugin], folder: str, clock: Clock) -> None:
        self._plugins = plugins
        self._folder = folder
        self._clock = clock
        #: (Plugin, cache key) → (expiry, credentials).
        self._cache: dict[tuple[str, str], tuple[float, list[Credential]]] = {}

    @classmethod
    def load(cls, file: str, folder: str, clock: Clock) -> Plugins:
        """Load a configuration file; no plugins if it does not exist. Raises :class:`PluginConfigError`. [KD-2]"""
        if not file or not Path(file).exists():
            return cls((), folder, clock)
        import yaml  # only agents with plugins need it

        try:
            document = yaml.safe_load(Path(file).read_bytes())
        except (OSError, UnicodeError, yaml.YAMLError, RecursionError) as error:
            raise PluginConfigError(f"{file} cannot be read: {type(error).__name__}") from None
        try:
            plugins = read_config(document)
        except PluginConfigError as error:
            raise PluginConfigError(f"{file}: {error}") from None
        for plugin in plugins:
            if not os.access(Path(folder, plugin.name), os.X_OK):
                raise PluginConfigError(f"{file}: {folder}/{plugin.name} is not an executable file")
        return cls(plugins, folder, clock)

    async def credentials(self, image: str) -> list[Credential]:
        """Return the plugins' credentials for an image. A failing plugin is logged without its output and skipped."""
        found: list[Credential] = []
        for plugin in self._plugins:
            if matches_any(plugin.match_images, image):
                try:
                    found += await self._ask(plugin, image)
                except CredentialsError as error:
                    logger.warning("credential provider %s: %s", plugin.name, error)
        return found

    def forget(self) -> None:
        """Drop cached answers, which may be out of date. [KD-94]"""
        self._cache.clear()

    async def _ask(self, plugin: Plugin, image: str) -> list[Credential]:
        parsed = parse_image(image)
        repository = parsed.repository if parsed is not None else image
        registry = repository.partition("/")[0]
        now = self._clock.monotonic()
        for kept_for in (image, registry, ""):
            until, known = self._cache.get((plugin.name, kept_for), (0.0, []))
            if until > now:
                return known
        answer = await self._run(plugin, image)
        found = credentials(answer.auth or {}, f"credential provider {plugin.name}")
        asked = plugin.cache_seconds if answer.cache_duration is None else duration(answer.cache_duration)
        kept = {"Image": image, "Registry": registry, "Global": ""}.get(answer.cache_key_type)
        if kept is not None and asked:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[plugin.name, kept] = (now + asked, found)
        return found

    async def _run(self, plugin: Plugin, image: str) -> _Response:
        request = {"apiVersion": plugin.api_version, "kind": "CredentialProviderRequest", "image": image}
        environment: Mapping[str, str] = {**os.environ, **dict(plugin.environment)}
        try:
            process = await asyncio.create_subprocess_exec(
                str(Path(self._folder, plugin.name)),
                *plugin.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise CredentialsError(f"cannot be started: {os.strerror(error.errno or 0)}") from None
        try:
            async with asyncio.timeout(_SECONDS):
                output = await _exchange(process, msgspec.json.encode(request))
                code = await process.wait()
        except TimeoutError:
            raise CredentialsError(f"did not answer within {_SECONDS:.0f} s") from None
        finally:
            await _end(process)
        if code != 0:
            raise CredentialsError(f"exited with code {code}")
        try:
            answer = _decode_response(output)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise CredentialsError("did not answer with a CredentialProviderResponse") from None
        if answer.kind != "CredentialProviderResponse":
            raise CredentialsError("did not answer with a CredentialProviderResponse")
        return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program and its children; discard any remaining output."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            while await process.stdout.read(_PIECE):
                pass
            await process.wait()


async def _exchange(process: asyncio.subprocess.Process, request: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(request)
        await process.stdin.drain()
    process.stdin.close()
    output = await process.stdout.read(_MAX_ANSWER + 1)
    while len(output) <= _MAX_ANSWER and (more := await process.stdout.read(_MAX_ANSWER)):
        output += more
    if len(output) > _MAX_ANSWER:
        raise CredentialsError("answered with more than 1 MiB")
    return output
