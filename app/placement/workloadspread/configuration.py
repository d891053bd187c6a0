"""The operator's list of custom workloads, as the ConfigMap has it now (WS-16)."""

from __future__ import annotations

from app.api import names
from app.kube.objects import ConfigMap
from app.kube.store import Store
from app.placement.workloadspread.plan.whitelist import Whitelist, parse_whitelist
from app.pods.customworkloads import ConfiguredList


class CustomWorkloads(ConfiguredList[Whitelist]):
    """Read again when the ConfigMap changes."""

    def __init__(self, config_maps: Store[ConfigMap], namespace: str) -> None:
        key = names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY
        super().__init__(config_maps, namespace, key, parse_whitelist)
