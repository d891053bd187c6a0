"""Asks the API server what it thinks of a Pod template: a dry-run create of a core PodTemplate (D-20).

It answers with every error and its path, in a few milliseconds, and neither quota nor Pod admission is in the way. So
Pod validation need not be written again, and is always that of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.errors import BadRequest, Invalid, StatusCause
from app.kube.resources import POD_TEMPLATES

PERMISSION = PolicyRule(("create",), ("",), ("podtemplates",), own_namespace=True)
_NAME = "pykruise-check-"
_ROOT = "template"


async def template_errors(client: Client, namespace: str, template: Mapping[str, Any], path: str) -> list[str]:
    """What is wrong with ``template`` (metadata and spec), with paths beginning at ``path``; nothing is created.

    ``path`` is where the template stands in the user's object, such as ``spec.template``; "" if the fields of its spec
    stand in the object's own. Raises ApiError where the server refuses for another reason than the template.
    """
    body = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"generateName": _NAME, "namespace": namespace},
        "template": template,
    }
    try:
        await client.create(POD_TEMPLATES, body, namespace, dry_run=True)
    except Invalid as error:
        return [_line(cause, path) for cause in error.causes] or [error.message]
    except BadRequest as error:
        # Not even of the right types: there are no causes, but the message names the Go field.
        return [f"{path or 'spec'}: {error.message}"]
    return []


def _line(cause: StatusCause, path: str) -> str:
    field = cause.field.removeprefix(_ROOT)
    return f"{path}{field}: {cause.message}" if path else f"{field.removeprefix('.')}: {cause.message}"
