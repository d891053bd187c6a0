"""ConfigMaps and Secrets: defaults, what is refused and what stays. Pure."""

from __future__ import annotations

import base64
from typing import Any, Final, TypeAlias

from app.kube.fielderrors import (
    FieldError,
    Path,
    forbidden,
    invalid,
    too_long,
)
from app.kube.validation import is_config_map_key

Json: TypeAlias = dict[str, Any]

_IMMUTABLE: Final = "field is immutable"


def default_secret(obj: Json) -> None:
    """``stringData`` is written into ``data``."""
    given = obj.pop("stringData", None)
    if given:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in given.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def config_map_errors(obj: Json) -> list[FieldError]:
    """Keys, keys that are in both maps, and the size."""
    found: list[FieldError] = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for name, values in (("data", data), ("binaryData", binary)):
        at = Path(name)
        for key, value in sorted(values.items()):
            found += [invalid(at.key(key), key, message) for message in is_config_map_key(key)]
            if name == "data" and key in binary:
                found.append(invalid(at.key(key), key, "duplicate of key present in binaryData"))
            size += len(value.encode()) if name == "data" else len(value) * 3 // 4
    if size > 2**20:
        found.append(too_long("[]", 2**20))
    return found


def frozen_data_stays(obj: Json, old: Json) -> list[FieldError]:
    """What is marked immutable stays as it is."""
    if not old.get("immutable"):
        return []
    message = "field is immutable when `immutable` is set"
    found = [] if obj.get("immutable") else [forbidden(Path("immutable"), message)]
    for name in ("data", "binaryData", "stringData"):
        if (obj.get(name) or {}) != (old.get(name) or {}):
            found.append(forbidden(Path(name), message))
    return found


def secret_stays(obj: Json, old: Json) -> list[FieldError]:
    """A Secret keeps its type."""
    found = [invalid(Path("type"), obj.get("type"), _IMMUTABLE)] if obj.get("type") != old.get("type") else []
    return found + frozen_data_stays(obj, old)


def secret_errors(obj: Json) -> list[FieldError]:
    """Keys of a Secret."""
    return [
        invalid(Path("data").key(key), key, message)
        for key in sorted(obj.get("data") or {})
        for message in is_config_map_key(key)
    ]


def secret_warnings(secret: Json) -> list[str]:
    """Advice about a Secret: a certificate that is none."""
    data = secret.get("data") or {}
    if secret.get("type") != "kubernetes.io/tls" or "tls.crt" not in data:
        return []
    try:
        text = base64.b64decode(data["tls.crt"])
    except ValueError:
        return []
    return [] if b"-----BEGIN" in text else ["tls: failed to find any PEM data in certificate input"]
