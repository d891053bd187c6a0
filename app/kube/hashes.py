"""FNV hashes and random suffixes for the names of revisions and Pods.

They use Kubernetes' alphabet for generated names, which has no vowels, so that no words appear by accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

_FNV_OFFSET_32 = 0x811C9DC5
_FNV_PRIME_32 = 0x01000193
_MASK_32 = 0xFFFFFFFF
_DECIMAL = [str(byte).encode() for byte in range(256)]
_ENCODED = {code: ALPHABET[code % len(ALPHABET)] for code in range(128)}


class Random(Protocol):
    """A source of random choices, such as ``random.Random``."""

    def choice(self, seq: Sequence[str], /) -> str:
        """Return a random item."""


def fnv32(data: bytes) -> int:
    """Return the 32-bit FNV-1 hash of ``data``: multiply, then XOR. [PM-82]"""
    value = _FNV_OFFSET_32
    for byte in data:
        value = (value * _FNV_PRIME_32 & _MASK_32) ^ byte
    return value


def fnv32a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash of ``data``: XOR, then multiply."""
    value = _FNV_OFFSET_32
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME_32 & _MASK_32
    return value


def safe_encode(text: str) -> str:
    """Map ``text`` (ASCII) character by character to the alphabet of generated names. [PM-82, SS-11]"""
    return text.translate(_ENCODED)


def random_suffix(rng: Random, length: int = 5) -> str:
    """Return ``length`` random characters of the alphabet, like those the API server appends to a generateName."""
    return "".join(rng.choice(ALPHABET) for _ in range(length))


def deep_hash(data: bytes) -> int:
    """Return the 32-bit hash the kubelet computes for a container: FNV-1a of ``data`` as printed by Go. [PM-137]"""
    return fnv32a(b"([]uint8)[%b]" % b" ".join(map(_DECIMAL.__getitem__, data)))
