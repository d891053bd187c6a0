"""Image references: their parts and full names, with a bounded cache of parsed references."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

#: Length in characters that no real name, image or path exceeds.
LONGEST: Final = 1024
F = TypeVar("F", bound=Callable[..., Any])


def remembered(maxsize: int, longest: int = LONGEST) -> Callable[[F], F]:
    """Like ``lru_cache``, but cache only calls whose arguments have at most ``longest`` characters in total. The
    arguments come from users, and four thousand results of a megabyte each would exhaust memory."""

    def decorate(function: F) -> F:
        cached = lru_cache(maxsize)(function)

        @wraps(function)
        def call(*texts: str) -> Any:
            if sum(map(len, texts)) > longest:
                return function(*texts)
            return cached(*texts)

        call.cache_info = cached.cache_info  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


# The grammar is that of https://github.com/distribution/reference. Short names are expanded as in container runtimes:
# ``busybox`` is ``docker.io/library/busybox``.
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_HOST_LABEL}(?:\.{_HOST_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_BARE_ID = re.compile(r"(?:sha256:)?[a-f0-9]{64}")
_LONGEST_NAME: Final = 255
#: Number of hexadecimal digits by digest algorithm.
_DIGESTS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
# Some runtimes prefix images in a node's status with the transport.
_TRANSPORTS = ("docker-pullable://", "docker://")


@dataclass(frozen=True, slots=True)
class ImageReference:
    """Parts of an image reference. ``repository`` includes the registry; ``tag`` and ``digest`` are '' if missing."""

    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def full_name(self) -> str:
        """Return the reference as a container runtime reports it. Without tag and digest, the tag is ``latest``."""
        if self.digest:
            return f"{self.repository}{':' + self.tag if self.tag else ''}@{self.digest}"
        return f"{self.repository}:{self.tag or 'latest'}"


@remembered(4096)
def parse_image(text: str) -> ImageReference | None:
    """Return the parts of an image reference, or None if it is invalid (such as a bare ``sha256:…`` in a status)."""
    for transport in _TRANSPORTS:
        text = text.removeprefix(transport)
    found = _REFERENCE.fullmatch(text)
    if found is None or _BARE_ID.fullmatch(text):
        return None
    return ImageReference(_complete(found["name"]), found["tag"] or "", found["digest"] or "")


def _complete(name: str) -> str:
    domain, slash, rest = name.partition("/")
    if not slash or not (set(domain) & set(".:") or domain == "localhost" or domain != domain.lower()):
        domain, rest = "docker.io", name
    if domain == "index.docker.io":
        domain = "docker.io"
    if domain == "docker.io" and "/" not in rest:
        rest = f"library/{rest}"
    return f"{domain}/{rest}"


@dataclass(frozen=True, slots=True)
class FamiliarImage:
    """An image as users write it: ``name`` omits ``docker.io/library/``, and ``tag`` is a tag or a digest. [IMG-20]"""

    name: str
    tag: str

    def __str__(self) -> str:
        """Return the reference; a digest follows an @. [IMG-100]"""
        return f"{self.name}{'@' if ':' in self.tag else ':'}{self.tag}"


def image_error(text: str) -> str:
    """Return why an image reference is invalid, in the words of Go's parser; '' if it is valid. [IMG-20]"""
    if _BARE_ID.fullmatch(text):
        return f"invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"
    domain, slash, rest = text.partition("/")
    has_domain = slash and (set(domain) & set(".:") or domain == "localhost")
    repository = (rest if has_domain else text).partition(":")[0]
    if repository != repository.lower():
        return "invalid reference format: repository name must be lowercase"
    found = _REFERENCE.fullmatch(text)
    if found is None:
        return "invalid reference format"
    if len(_complete(found["name"])) > _LONGEST_NAME:
        return f"repository name must not be more than {_LONGEST_NAME} characters"
    algorithm, _, digits = (found["digest"] or "").partition(":")
    if not algorithm:
        return ""
    if algorithm not in _DIGESTS:
        return "unsupported digest algorithm"
    if len(digits) != _DIGESTS[algorithm]:
        return "invalid checksum digest length"
    return "" if digits == digits.lower() else "invalid checksum digest format"


@remembered(4096)
def familiar_image(text: str) -> FamiliarImage | None:
    """Return the repository and the tag of an image reference, or None if it is invalid. [IMG-20]

    If there is a digest, the tag is dropped. Without either, the tag is ``latest``.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None or image_error(text):
        return None
    name = _complete(found["name"]).removeprefix("docker.io/")
    short = name.removeprefix("library/")
    return FamiliarImage(name if "/" in short else short, found["digest"] or found["tag"] or "latest")
