"""The operator's list of custom workloads, as the ConfigMap has it now (WS-16)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.api import names
from app.kube.objects import ConfigMap
from app.kube.store import Store
from app.placement.workloadspread.plan.whitelist import Whitelist, WhitelistError, parse_whitelist

logger = logging.getLogger(__name__)


class CustomWorkloads:
    """Reads the list again when the ConfigMap changes; one that cannot be read leaves the last good one in place."""

    def __init__(self, config_maps: Store[ConfigMap], namespace: str) -> None:
        self._store = config_maps
        self._namespace = namespace
        self._text: str | None = None
        self._list = Whitelist()
        #: Called with the new list when it has changed.
        self.on_change: Callable[[Whitelist], None] | None = None

    def __call__(self) -> Whitelist:
        """The list."""
        found = self._store.get(names.CONFIGURATION_CONFIG_MAP, self._namespace)
        text = (found.data or {}).get(names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY) if found else None
        if text != self._text:
            self._text = text
            try:
                self._list = parse_whitelist(text)
            except WhitelistError as error:
                logger.warning("%s; the former list stays in force", error)
            else:
                if self.on_change is not None:
                    self.on_change(self._list)
        return self._list
