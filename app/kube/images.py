"""Image references: their parts and full names, with a bounded memory of those already parsed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

# Results that are remembered by texts that users write.
#
# What repeats in a cluster (images, names, hashes of them) is worth remembering; but who may write an object chooses
# the text, and a cache of four thousand results of a megabyte each would be the end of the process. Longer texts are
# computed each time.

#: Far more than any honest name, image or path has.
LONGEST: Final = 1024
F = TypeVar("F", bound=Callable[..., Any])


def remembered(maxsize: int, longest: int = LONGEST) -> Callable[[F], F]:
    """As ``lru_cache``, for functions of texts: only for those that are no longer than ``longest`` all together."""

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


# Image references: their parts and their full names.
#
# Follows the grammar of https://github.com/distribution/reference. Short names are completed as the container runtimes
# do it: ``busybox`` is ``docker.io/library/busybox``.

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
# A node's status writes how the image was pulled in front of it on some runtimes.
_TRANSPORTS = ("docker-pullable://", "docker://")


@dataclass(frozen=True, slots=True)
class ImageReference:
    """``repository`` with its registry, ``tag`` and ``digest``; the last two are '' when the reference has none."""

    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def full_name(self) -> str:
        """The reference as a container runtime reports it; without tag and digest, tag ``latest`` stands in."""
        if self.digest:
            return f"{self.repository}{':' + self.tag if self.tag else ''}@{self.digest}"
        return f"{self.repository}:{self.tag or 'latest'}"


@remembered(4096)
def parse_image(text: str) -> ImageReference | None:
    """The parts of an image reference, or None if it is none (as a bare ``sha256:…`` in a status)."""
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
    """An image as people write it: ``name`` without ``docker.io/library/``, ``tag`` a tag or a digest (IMG-20)."""

    name: str
    tag: str

    def __str__(self) -> str:
        """The reference again; a digest stands behind an @ (IMG-100)."""
        return f"{self.name}{'@' if ':' in self.tag else ':'}{self.tag}"


@remembered(4096)
def familiar_image(text: str) -> FamiliarImage | None:
    """The repository and the tag of an image reference, or None if it is none (IMG-20).

    Of a tag and a digest only the digest is kept; without either the tag is ``latest``.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None or _BARE_ID.fullmatch(text):
        return None
    first, slash, _ = found["name"].partition("/")
    if slash and first != first.lower() and not set(first) & set(".:"):
        # No registry by its looks, so it would be part of the repository, which must be lower case.
        return None
    name = _complete(found["name"]).removeprefix("docker.io/")
    short = name.removeprefix("library/")
    return FamiliarImage(name if "/" in short else short, found["digest"] or found["tag"] or "latest")
