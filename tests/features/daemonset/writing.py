"""Writing DaemonSets without a cluster."""

from __future__ import annotations

from typing import Any

from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.webhooks import handlers
from app.pods.template_check import TemplateLookups
from tests.admission.writing import BETA, Json, Written, written

HANDLERS = handlers(TemplateLookups())


def daemon_set(version: str = BETA, *, annotations: Json | None = None, **spec: Any) -> Json:
    """Return a valid DaemonSet with ``spec`` merged over it; None removes a field."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "nginx:1"}]}}
    whole = {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    return {
        "apiVersion": version,
        "kind": "DaemonSet",
        "metadata": {"name": "ds", "namespace": "shop", **({"annotations": annotations} if annotations else {})},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def rolling(**fields: Any) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": fields}


def write(obj: Json, old: Json | None = None) -> Written:
    """Create ``obj``, or update ``old`` to it, in the version it is written in."""
    return written(DAEMON_SET, HANDLERS, obj, old)
