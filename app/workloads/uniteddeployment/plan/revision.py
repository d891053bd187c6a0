"""What a UnitedDeployment records as a revision (UD-42, UD-45). Pure."""

from __future__ import annotations

from app.api.gojson import dumps_go
from app.api.uniteddeployment import UNITED_DEPLOYMENT, UnitedDeployment
from app.api.uniteddeployment.defaults import as_printed
from app.api.uniteddeployment.types import TEMPLATES, template_of
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.revisions import Content

KIND = WorkloadKind(UNITED_DEPLOYMENT.resource())


def content_of(united: UnitedDeployment) -> Content:
    """UD-42, UD-45: the template alone is recorded, as Go prints it."""
    owner = KIND.owner(united.metadata)
    shown = as_printed({"spec": {"template": united.spec.template.to_dict() if united.spec.template else {}}})
    whole = shown["spec"]["template"]
    for name in TEMPLATES:
        given = whole.get(name)
        if isinstance(given, dict):
            given["metadata"] = {"creationTimestamp": None, **(given.get("metadata") or {})}
            pod = (given.get("spec") or {}).get("template")
            if isinstance(pod, dict):
                pod["metadata"] = {"creationTimestamp": None, **(pod.get("metadata") or {})}
            scale = (given.get("spec") or {}).get("scaleStrategy")
            if isinstance(scale, dict) and scale.get("enablePVCReuse") is False:
                del scale["enablePVCReuse"]
    data = dumps_go({"spec": {"template": {**whole, "$patch": "replace"}}}, sort_keys=True).encode()
    found = template_of(united.spec)
    labels = (found[1].get("metadata") or {}).get("labels") or {} if found is not None else {}
    return Content(owner, data, dict(labels), {})
