"""Further kinds of workloads whose Pods go back, as the operator lists them in a ConfigMap (PPS-9). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from app.api import names
from app.pods.customworkloads import GroupKind, ListedKind, listed_kinds


def parse_kinds(text: str | None) -> Mapping[GroupKind, ListedKind]:
    """The kinds on the list in the ConfigMap; none without one. Raises WhitelistError."""
    return listed_kinds(text, names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY)
