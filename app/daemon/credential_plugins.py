"""Credential provider plugins: programs on the node that return credentials for images."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from app.daemon.credentials import Credential, CredentialsError, Entries, Pattern, credentials, read_file
from app.kube.clock import Clock
from app.kube.fielderrors import parse_duration
from app.kube.images import parse_image
from app.kube.objects import Struct

# As in the kubelet, a configuration lists the images of each plugin, and a plugin reads a request from standard input
# and writes a response to standard output. [KD-36]
# https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/

logger = logging.getLogger(__name__)

#: Time limit of one run in seconds, as in the kubelet. It includes the wait for other plugins: few run at once,
#: because all share the agent's memory limit.
_SECONDS: Final = 60.0
_RUN_AT_ONCE: Final = 4
_END_SECONDS: Final = 5.0
_PIECE: Final = 64 * 1024
_MAX_ANSWER: Final = 1024 * 1024
_MAX_CACHED: Final = 512
_CONFIGS: Final = tuple(f"kubelet.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_VERSIONS: Final = tuple(f"credentialprovider.kubelet.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_FIELDS: Final = {"name", "apiVersion", "matchImages", "defaultCacheDuration", "args", "env", "tokenAttributes"}
_MAX_DURATION: Final = 64


class PluginConfigError(ValueError):
    """The plugin configuration is invalid."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin program and the images it serves."""

    name: str
    images: tuple[Pattern, ...]
    cache_seconds: float
    api_version: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    #: Whether the plugin needs a service account token and therefore works only for Pods.
    needs_pod: bool = False


class _Response(Struct, frozen=True):
    kind: str = ""
    api_version: str = ""
    cache_key_type: str = ""
    cache_duration: str | None = None
    auth: Entries = None


_decode_response: Final = msgspec.json.Decoder(_Response).decode


def read_config(document: Any) -> list[Plugin]:
    """Return the plugins of a parsed configuration file. Raises :class:`PluginConfigError`."""
    if not isinstance(document, dict) or document.get("kind") != "CredentialProviderConfig":
        raise PluginConfigError("not a CredentialProviderConfig")
    if document.get("apiVersion") not in _CONFIGS:
        raise PluginConfigError(f"apiVersion: must be one of {', '.join(_CONFIGS)}")
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
    patterns = [Pattern.of(one) if isinstance(one, str) else None for one in images] if isinstance(images, list) else []
    if not patterns or None in patterns:
        raise PluginConfigError(f"{path}.matchImages: must be a list of registries such as *.example.com")
    arguments, environment = fields.get("args") or [], fields.get("env") or []
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise PluginConfigError(f"{path}.args: must be a list of strings")
    if not isinstance(environment, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str)
        for one in environment
    ):
        raise PluginConfigError(f"{path}.env: must be a list of objects with name and value")
    seconds = duration(fields.get("defaultCacheDuration"))
    if seconds is None:
        raise PluginConfigError(f"{path}.defaultCacheDuration: must be a duration such as 12h")
    attributes = fields.get("tokenAttributes") or {}
    if not isinstance(attributes, dict):
        raise PluginConfigError(f"{path}.tokenAttributes: must be an object")
    # Later kubelet versions may have more fields.
    for unknown in sorted(map(str, fields.keys() - _FIELDS)):
        logger.warning("%s.%s: unknown field has no effect", path, unknown)
    return Plugin(
        name,
        tuple(filter(None, patterns)),
        seconds,
        version,
        tuple(arguments),
        tuple((one["name"], one["value"]) for one in environment),
        needs_pod=bool(attributes.get("requireServiceAccount")),
    )


def duration(text: Any) -> float | None:
    """Parse a Go duration into seconds. Return None if it is invalid or negative."""
    if not (isinstance(text, str | int) and len(str(text)) <= _MAX_DURATION):
        return None
    try:
        seconds = parse_duration(str(text))
    except ValueError:
        return None
    return seconds if seconds >= 0 else None


class Plugins:
    """The node's plugins, run on demand. Responses are cached for as long as the plugins allow."""

    def __init__(
        self, plugins: Sequence[Plugin], folder: str, clock: Clock, on_error: Callable[[str], None] = lambda _: None
    ) -> None:
        """``on_error`` is called with the name of a plugin that failed."""
        self._plugins = plugins
        self._folder = folder
        self._clock = clock
        self._on_error = on_error
        self._places = asyncio.Semaphore(_RUN_AT_ONCE)
        #: (Plugin, cache key) → (expiry, credentials).
        self._cache: dict[tuple[str, str], tuple[float, list[Credential]]] = {}
        #: (Plugin, repository) → its run, which concurrent pulls share.
        self._runs: dict[tuple[str, str], asyncio.Task[list[Credential]]] = {}

    @classmethod
    def load(cls, path: str, folder: str, clock: Clock, on_error: Callable[[str], None] = lambda _: None) -> Plugins:
        """Load the plugins from a configuration file or a folder of such files. If ``path`` does not exist, there are
        none. Raises :class:`PluginConfigError`. [KD-2]"""
        plugins: dict[str, Plugin] = {}
        for file in _config_files(path):
            for plugin in _load(file):
                if plugin.name in plugins:
                    raise PluginConfigError(f"{file}: duplicate provider {plugin.name}")
                if not os.access(Path(folder, plugin.name), os.X_OK):
                    raise PluginConfigError(f"{file}: {folder}/{plugin.name} is not an executable file")
                plugins[plugin.name] = plugin
        if plugins:
            logger.info("credential providers: %s", ", ".join(plugins))
        return cls([*plugins.values()], folder, clock, on_error)

    async def credentials(self, image: str, seconds: float) -> list[Credential]:
        """Return the plugins' credentials for an image, within ``seconds``. If a plugin fails, the failure is counted
        and logged without the plugin's output, and the plugin is skipped."""
        parsed, found = parse_image(image), list[Credential]()
        if parsed is None:
            return found
        repository = parsed.repository
        try:
            async with asyncio.timeout(seconds):
                for plugin in self._plugins:
                    if not plugin.needs_pod and any(one.matches(repository) for one in plugin.images):
                        found += await self._shared(plugin, repository)
        except TimeoutError:
            logger.warning("pulling %s: timed out waiting for credential providers", image)
        return found

    def forget(self) -> None:
        """Drop cached responses, which may be out of date. [KD-94]"""
        self._cache.clear()

    async def _shared(self, plugin: Plugin, repository: str) -> list[Credential]:
        run = self._runs.get(key := (plugin.name, repository))
        if run is None:
            run = self._runs[key] = asyncio.create_task(self._ask(plugin, repository), name=f"plugin {plugin.name}")
            run.add_done_callback(lambda _: self._runs.pop(key))
        # Canceling one pull must not cancel a run that others share.
        return await asyncio.shield(run)

    async def _ask(self, plugin: Plugin, repository: str) -> list[Credential]:
        registry = repository.partition("/")[0]
        now = self._clock.monotonic()
        for kept_for in (repository, registry, ""):
            until, known = self._cache.get((plugin.name, kept_for), (0.0, []))
            if until > now:
                return known
        try:
            answer = await self._run(plugin, repository)
            found = credentials(answer.auth or {}, "response")
            kept = {"Image": repository, "Registry": registry, "Global": ""}.get(answer.cache_key_type)
            if kept is None:
                raise CredentialsError("did not return a valid cacheKeyType")  # noqa: TRY301
        except CredentialsError as error:
            logger.warning("credential provider %s: %s", plugin.name, error)
            self._on_error(plugin.name)
            return []
        asked = plugin.cache_seconds if answer.cache_duration is None else duration(answer.cache_duration)
        if asked:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[plugin.name, kept] = (now + asked, found)
        return found

    async def _run(self, plugin: Plugin, repository: str) -> _Response:
        request = {"apiVersion": plugin.api_version, "kind": "CredentialProviderRequest", "image": repository}
        try:
            async with asyncio.timeout(_SECONDS), self._places:
                code, output = await self._output(plugin, msgspec.json.encode(request))
        except TimeoutError:
            raise CredentialsError(f"did not respond within {_SECONDS:.0f} s") from None
        if code != 0:
            raise CredentialsError(f"exited with code {code}")
        try:
            answer = _decode_response(output)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise CredentialsError("did not return a CredentialProviderResponse") from None
        if answer.kind != "CredentialProviderResponse" or answer.api_version != plugin.api_version:
            raise CredentialsError(f"did not return a CredentialProviderResponse of {plugin.api_version}")
        return answer

    async def _output(self, plugin: Plugin, request: bytes) -> tuple[int, bytes]:
        """Run a plugin. Return its exit code and its output."""
        environment: Mapping[str, str] = {**os.environ, **dict(plugin.environment)}
        try:
            process = await asyncio.create_subprocess_exec(
                str(Path(self._folder, plugin.name)),
                *plugin.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # The plugin's error output may contain credentials.
                stderr=asyncio.subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "args or env contain a null byte"
            raise CredentialsError(f"cannot be started: {reason}") from None
        try:
            output = await _exchange(process, request)
            return await process.wait(), output
        finally:
            await _end(process)


def _config_files(path: str) -> list[Path]:
    """Return the configuration files at a path; those in a folder are sorted by name."""
    if not path or not (found := Path(path)).exists():
        return []
    if not found.is_dir():
        return [found]
    files = sorted(one for one in found.iterdir() if one.suffix in (".json", ".yaml", ".yml") and not one.is_dir())
    if not files:
        raise PluginConfigError(f"{path} contains no .json, .yaml or .yml file")
    return files


def _load(file: Path) -> list[Plugin]:
    import yaml  # only agents with plugins need it

    try:
        document = yaml.safe_load(read_file(file) or b"")
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise PluginConfigError(f"{file} cannot be read: {type(error).__name__}") from None
    try:
        return read_config(document)
    except PluginConfigError as error:
        raise PluginConfigError(f"{file}: {error}") from None


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
        raise CredentialsError("printed more than 1 MiB")
    return output
