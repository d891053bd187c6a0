"""The words of structural schemas. Apart from what makes schemas of our types, which imports much."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
