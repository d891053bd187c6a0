"""Credentials of registries: read from Secrets, and found for an image (KD-36, KD-37). Pure.

Follows the kubelet, so that a Secret works for a pull ahead exactly if it works for a Pod.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from app.daemon.cri import Auth
from app.kube.images import parse_image
from app.kube.objects import Secret, Struct

CONFIG_JSON: Final = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")
CONFIG_FILE: Final = ("kubernetes.io/dockercfg", ".dockercfg")
_DOCKER_HUB: Final = "docker.io"
_DEFAULT_REGISTRY: Final = "index.docker.io"
#: A registry is known by a name this long at most, with parts this long; more is no name.
_MAX_KEY: Final = 1024
_MAX_LABEL: Final = 255
#: KD-104: a Secret that holds more is not read. Anybody may write one of 1 MiB, of 100,000 registries.
MAX_SECRET_BYTES: Final = 256 * 1024
MAX_REGISTRIES: Final = 256


class CredentialsError(ValueError):
    """Credentials that cannot be read. The text never shows any part of them."""


class Entry(Struct, frozen=True):
    """What is known for one registry."""

    username: str | None = None
    password: str | None = None
    auth: str | None = None


Entries: TypeAlias = dict[str, Entry | None] | None


class _Config(Struct, frozen=True):
    auths: Entries = None


#: What is null is as good as not there.
_decode_config: Final = msgspec.json.Decoder(_Config | None).decode
_decode_file: Final = msgspec.json.Decoder(Entries).decode


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which images a key is for: ``*.example.com:5000/team``."""

    host: tuple[str, ...]
    port: str
    path: str

    @classmethod
    def of(cls, key: str) -> Pattern | None:
        """The pattern of a key, or None if it is none."""
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
        """The key in one form."""
        return ".".join(self.host) + (f":{self.port}" if self.port else "") + self.path

    def matches(self, repository: str) -> bool:
        """Whether the key is for that repository (with its registry)."""
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
    """Who may pull, and for which images."""

    pattern: Pattern
    auth: Auth


def read_secret(secret: Secret) -> list[Credential]:
    """The credentials in a Secret; none in one of another type. Raises :class:`CredentialsError`."""
    name = f"{secret.metadata.namespace}/{secret.metadata.name}"
    if secret.type not in (CONFIG_JSON[0], CONFIG_FILE[0]):
        return []
    if (size := sum(map(len, secret.data.values()))) > MAX_SECRET_BYTES:
        raise CredentialsError(f"Secret {name} is not read: it holds {size} bytes, more than {MAX_SECRET_BYTES}")
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
    """Entries by registry as credentials. Raises :class:`CredentialsError`."""
    if len(entries) > MAX_REGISTRIES:
        raise CredentialsError(f"{where} is not read: it is for {len(entries)} registries, more than {MAX_REGISTRIES}")
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
    # As the kubelet: lines may be wrapped, and there need be no padding.
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
    """KD-36: those that are for an image, the most specific first."""
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
    """KD-36: what is tried for an image, one after the other, each once."""
    return list(dict.fromkeys(one.auth for one in for_image(known, image)))


def matches_any(patterns: Iterable[str], image: str) -> bool:
    """Whether an image is one of those that a plugin is for."""
    parsed = parse_image(image)
    if parsed is None:
        return False
    found = (Pattern.of(text) for text in patterns)
    return any(pattern is not None and pattern.matches(parsed.repository) for pattern in found)


def without_credentials(text: str, used: Iterable[Auth]) -> str:
    """``text`` with everything taken out that gives the credentials away: a registry or a runtime may repeat them."""
    for auth in used:
        both = f"{auth.username}:{auth.password}"
        for secret in (auth.password, base64.b64encode(both.encode()).decode()):
            if len(secret) > 2:
                text = text.replace(secret, "***")
    return text
