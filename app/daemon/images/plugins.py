"""Credential provider plugins, as the kubelet has them: a configuration that says which images each is for, and
programs that are asked for credentials on their standard input (KD-36).

Source: https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from app.daemon.images.keyring import (
    Credential,
    CredentialsError,
    Entries,
    Pattern,
    credentials,
    matches_any,
)
from app.kube.clock import Clock
from app.kube.images import parse_image
from app.kube.objects import Struct

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
    """The configuration of the plugins cannot be used."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One program and the images it is for."""

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
    """The plugins of a parsed configuration file. Raises :class:`PluginConfigError`."""
    if not isinstance(document, dict) or document.get("kind") != "CredentialProviderConfig":
        raise PluginConfigError("not a CredentialProviderConfig")
    providers = document.get("providers")
    if not isinstance(providers, list) or not providers:
        raise PluginConfigError("providers: name at least one")
    return [_plugin(provider, f"providers[{number}]") for number, provider in enumerate(providers)]


def _plugin(provider: Any, path: str) -> Plugin:
    fields = provider if isinstance(provider, dict) else {}
    name, version, images = fields.get("name"), fields.get("apiVersion"), fields.get("matchImages")
    if not isinstance(name, str) or not name or "/" in name or name in (".", "..") or " " in name:
        raise PluginConfigError(f"{path}.name: the name of a file in the folder of the plugins")
    if version not in _VERSIONS:
        raise PluginConfigError(f"{path}.apiVersion: one of {', '.join(_VERSIONS)}")
    if not isinstance(images, list) or not images or not all(_is_pattern(image) for image in images):
        raise PluginConfigError(f"{path}.matchImages: a list of registries such as *.example.com")
    arguments, environment = fields.get("args") or [], fields.get("env") or []
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise PluginConfigError(f"{path}.args: a list of strings")
    if not isinstance(environment, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str)
        for one in environment
    ):
        raise PluginConfigError(f"{path}.env: a list of name and value")
    seconds = duration(fields.get("defaultCacheDuration"))
    if seconds is None:
        raise PluginConfigError(f"{path}.defaultCacheDuration: a duration such as 12h")
    pairs = tuple((one["name"], one["value"]) for one in environment)
    return Plugin(name, tuple(images), seconds, version, tuple(arguments), pairs)


def _is_pattern(text: Any) -> bool:
    return isinstance(text, str) and Pattern.of(text) is not None


def duration(text: Any) -> float | None:
    """A Go duration in seconds; None if it is none."""
    if text in ("0", 0):
        return 0.0
    if not isinstance(text, str) or not text or _DURATION.sub("", text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


class Plugins:
    """The plugins of the node, asked as needed; what they say is kept as long as they allow."""

    def __init__(self, plugins: Sequence[Plugin], folder: str, clock: Clock) -> None:
        self._plugins = plugins
        self._folder = folder
        self._clock = clock
        #: Plugin and what the answer is for → until when, and the answer.
        self._cache: dict[tuple[str, str], tuple[float, list[Credential]]] = {}

    @classmethod
    def load(cls, file: str, folder: str, clock: Clock) -> Plugins:
        """KD-2: those of a configuration file; none if there is no such file. Raises :class:`PluginConfigError`."""
        if not file or not Path(file).exists():
            return cls((), folder, clock)
        import yaml  # an agent without plugins does without

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
                raise PluginConfigError(f"{file}: {folder}/{plugin.name} is no program")
        return cls(plugins, folder, clock)

    async def credentials(self, image: str) -> list[Credential]:
        """What the plugins know for an image. One that fails is logged, without what it said, and counts as silent."""
        found: list[Credential] = []
        for plugin in self._plugins:
            if matches_any(plugin.match_images, image):
                try:
                    found += await self._ask(plugin, image)
                except CredentialsError as error:
                    logger.warning("credential provider %s: %s", plugin.name, error)
        return found

    def forget(self) -> None:
        """KD-94: what was answered may be out of date."""
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
            raise CredentialsError(f"ended with exit code {code}")
        try:
            answer = _decode_response(output)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise CredentialsError("did not answer with a CredentialProviderResponse") from None
        if answer.kind != "CredentialProviderResponse":
            raise CredentialsError("did not answer with a CredentialProviderResponse")
        return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill what is left of the program and of what it has started; what it still says is thrown away."""
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
        raise CredentialsError("answered with more than a mebibyte")
    return output
