"""Whom an API server trusts when it calls us, as its objects say. Pure."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from app.certs.rotation import blocks


def trusted_for_us(definitions: Iterable[Mapping[str, Any]], configurations: Iterable[Mapping[str, Any]]) -> bytes:
    """Every CA that an API server is told to trust for us, PEM; what cannot be read is left out."""
    configs = [
        ((definition.get("spec") or {}).get("conversion") or {}).get("webhook", {}).get("clientConfig")
        for definition in definitions
    ]
    for configuration in configurations:
        configs += [entry.get("clientConfig") for entry in configuration.get("webhooks") or []]
    found: dict[bytes, None] = {}
    # Nearly all say the same.
    for bundle in dict.fromkeys((config or {}).get("caBundle") or "" for config in configs):
        with contextlib.suppress(binascii.Error, ValueError):
            found[base64.b64decode(bundle, validate=True)] = None
    return b"".join(found)


def carries(configuration: Mapping[str, Any] | None, authority: bytes) -> bool:
    """Whether whoever is called by a configuration is trusted if ``authority`` (PEM) signed what it serves."""
    entries = (configuration or {}).get("webhooks") or []
    wanted = frozenset(blocks(authority))
    for entry in entries:
        try:
            bundle = base64.b64decode((entry.get("clientConfig") or {}).get("caBundle") or "", validate=True)
        except (binascii.Error, ValueError):
            return False
        if not wanted <= set(blocks(bundle)):
            return False
    return True
