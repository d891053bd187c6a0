"""Registry credentials from pull secrets and docker configuration files, matched to images."""

from __future__ import annotations

import base64
import binascii
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec

from app.daemon.cri.types import Auth
from app.kube.images import parse_image
from app.kube.objects import PULL_SECRET_KEYS, Secret, Struct

# Credentials are matched as in the kubelet, so that they work for a pre-pull exactly when they work for a Pod.
# [KD-36, KD-37]
# https://kubernetes.io/docs/concepts/containers/images/#config-json

logger = logging.getLogger(__name__)

_LEGACY: Final = ".dockercfg"
_DOCKER_HUB: Final = "docker.io"
_DEFAULT_REGISTRY: Final = "index.docker.io"
#: Maximum lengths of a registry key and of each label in it. Keys that exceed a limit are ignored.
_MAX_KEY: Final = 1024
_MAX_LABEL: Final = 255
#: Maximum size of a pull secret. Any tenant may write a Secret of 1 MiB with 100,000 registries. [KD-104]
MAX_SECRET_BYTES: Final = 256 * 1024
MAX_REGISTRIES: Final = 256
#: Maximum size of a docker configuration file on the node. Larger files are ignored.
MAX_FILE_BYTES: Final = 1024 * 1024


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
    """Image pattern, such as ``*.example.com:5000/team``. A ``*`` matches part of one label of the host."""

    host: tuple[str, ...]
    port: str
    path: str
    #: The key without its scheme and version: ``registry.example/team``.
    text: str

    @classmethod
    def of(cls, text: str) -> Pattern | None:
        """Parse a pattern. Return None if it is invalid."""
        if len(text) > _MAX_KEY:
            return None
        try:
            parts = urlsplit(f"https://{text}")
        except ValueError:
            return None
        netloc = parts.netloc.rpartition("@")[2]
        host, port = _host_and_port(netloc)
        labels = tuple(host.split("."))
        if not host or max(map(len, labels)) > _MAX_LABEL:
            return None
        return cls(labels, port, parts.path, netloc + parts.path)

    @classmethod
    def of_registry(cls, key: str) -> Pattern | None:
        """Parse a registry as docker writes it, such as ``https://index.docker.io/v1/``. Return None if invalid."""
        pattern = cls.of(key.removeprefix("https://") if key.startswith("https://") else key.removeprefix("http://"))
        if pattern is None:
            return None
        path = pattern.path[3:] if pattern.path.startswith(("/v1/", "/v2/")) else pattern.path
        path = "" if path == "/" else path
        registry = pattern.text.removesuffix(pattern.path)
        return cls(pattern.host, pattern.port, path, registry + path)

    def matches(self, repository: str) -> bool:
        """Return whether the pattern matches the repository (registry included)."""
        registry, _, rest = repository.partition("/")
        host, port = _host_and_port(registry)
        labels = host.split(".")
        return (
            port == self.port
            and len(labels) == len(self.host)
            and all(fnmatchcase(label, glob) for label, glob in zip(labels, self.host, strict=True))
            and f"/{rest}".startswith(self.path)
        )


def _host_and_port(registry: str) -> tuple[str, str]:
    """Split as Go does: only an IPv6 address with a port loses its brackets."""
    host, _, port = registry.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], port
    return (host, port) if host and ":" not in host else (registry, "")


@dataclass(frozen=True, slots=True)
class Credential:
    """Credentials and the images they are valid for."""

    pattern: Pattern
    auth: Auth


def read_secret(secret: Secret) -> list[Credential]:
    """Return the credentials in a Secret, or none if it is not a pull secret. Raises :class:`CredentialsError`."""
    name = f"{secret.metadata.namespace}/{secret.metadata.name}"
    key = PULL_SECRET_KEYS.get(secret.type)
    if key is None:
        return []
    if (size := sum(map(len, secret.data.values()))) > MAX_SECRET_BYTES:
        raise CredentialsError(f"Secret {name} is ignored: it holds {size} bytes, more than {MAX_SECRET_BYTES}")
    content = secret.data.get(key, b"")
    return _of_file(content, f"Secret {name}", legacy=key == _LEGACY, what=f" of type {secret.type}")


def _of_file(content: bytes, where: str, *, legacy: bool, what: str = "") -> list[Credential]:
    """Return the credentials in a docker configuration. Raises :class:`CredentialsError`."""
    try:
        if legacy:
            entries = _decode_file(content)
        else:
            config = _decode_config(content)
            entries = config.auths if config is not None else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise CredentialsError(f"{where}{what} cannot be read") from None
    return credentials(entries or {}, where)


def credentials(entries: Mapping[str, Entry | None], where: str) -> list[Credential]:
    """Convert a docker configuration's entries, keyed by registry. Raises :class:`CredentialsError`."""
    if len(entries) > MAX_REGISTRIES:
        raise CredentialsError(f"{where} is ignored: it lists {len(entries)} registries, more than {MAX_REGISTRIES}")
    found = []
    for key, entry in entries.items():
        pattern = Pattern.of_registry(key)
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
    """Return the credentials that match an image, most specific first. Credentials for Docker's default registry apply
    to Docker Hub images that no other credentials match. [KD-36]"""
    parsed = parse_image(image)
    if parsed is None:
        return []
    known = list(known)
    matching = [one for one in known if one.pattern.matches(parsed.repository)]
    if not matching and parsed.repository.startswith(f"{_DOCKER_HUB}/"):
        matching = [one for one in known if one.pattern.text == _DEFAULT_REGISTRY]
    return sorted(matching, key=lambda one: one.pattern.text, reverse=True)


def lookup(known: Iterable[Credential], image: str) -> list[Auth]:
    """Return the distinct credentials to try for an image, in order. [KD-36]"""
    return list(dict.fromkeys(one.auth for one in for_image(known, image)))


def without_credentials(text: str, used: Iterable[Auth]) -> str:
    """Return ``text`` with credentials masked: registries and runtimes may repeat them in errors."""
    for auth in used:
        both = f"{auth.username}:{auth.password}"
        for secret in (auth.password, base64.b64encode(both.encode()).decode()):
            if len(secret) > 2:
                text = text.replace(secret, "***")
    return text


class Keyring(Protocol):
    """A source of credentials on the node."""

    async def credentials(self, image: str, seconds: float) -> list[Credential]:
        """Return credentials for an image, within ``seconds``. Never fails: the pull may work without them."""

    def forget(self) -> None:
        """Drop cached credentials: the registry may have refused them."""


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """The node's docker configuration: the first of ``files`` that can be read. It is reread for every pull."""

    files: tuple[Path, ...]

    @classmethod
    def searched(cls, path: str, home: str) -> DockerConfig:
        """Return the files that the kubelet would read with ``path`` as its root directory; ``path`` may be a file."""
        first, here, own, root = Path(path), Path(), Path(home or "/"), Path("/")
        folders = (first, here, own / ".docker", root / ".docker")
        old = (first, here, own, root)
        return cls((first, *(one / "config.json" for one in folders), *(one / _LEGACY for one in old)))

    async def credentials(self, image: str, seconds: float) -> list[Credential]:  # noqa: ARG002 - of the protocol
        """Return the credentials of the first readable file; log errors in earlier ones."""
        for file in self.files:
            try:
                content = read_file(file)
                if content is not None:
                    return _of_file(content, str(file), legacy=file.name == _LEGACY)
            except (CredentialsError, OSError) as error:
                reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else error
                logger.warning("docker configuration %s is ignored: %s", file, reason)
        return []

    def forget(self) -> None:
        """Do nothing: nothing is cached."""


def _without_blocking(path: str, flags: int) -> int:
    """Open a file without blocking, even if it is a pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_file(path: Path) -> bytes | None:
    """Return the content of a file, or None if it is missing or not a regular file. Raises ``OSError`` or
    :class:`CredentialsError`."""
    try:
        with open(path, "rb", opener=_without_blocking) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return None
            content = opened.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    if len(content) > MAX_FILE_BYTES:
        raise CredentialsError(f"larger than {MAX_FILE_BYTES} bytes")
    return content
