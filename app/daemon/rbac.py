"""Objects the node agent reads and writes on the API server. The chart's roles are derived from this. [KD-80]"""

from __future__ import annotations

from typing import Final

from app.api import names
from app.kube.admission import PolicyRule

_GROUP: Final = ("apps.kruise.io",)
_KINDS: Final = ("nodeimages", "containerrecreaterequests", "nodepodprobes")

RULES: Final = (
    PolicyRule(("get", "list", "watch"), _GROUP, _KINDS),
    PolicyRule(("patch",), _GROUP, tuple(f"{plural}/status" for plural in _KINDS)),
    PolicyRule(("get", "list", "watch"), ("",), ("pods",)),
    PolicyRule(("patch",), ("",), ("pods/status",)),
    PolicyRule(("create", "patch"), ("",), ("events",)),
    PolicyRule(("get",), ("",), ("secrets",), namespace=names.DAEMON_CONFIG_NAMESPACE),
)
