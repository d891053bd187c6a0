"""The HTTP API as FastAPI's users know it: ``/docs`` and ``/openapi.json``, each webhook with a review one can send.

These pages describe; the webhook paths themselves are answered before FastAPI is asked (see app.admission.server).
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.routing import Mount

from app.admission.loopback import LoopbackOnly
from app.admission.models import AdmissionAnswer, AdmissionReview
from app.admission.registry import Registry
from app.admission.server import AdmissionApp
from app.kube.admission import Webhook
from app.manager.cited import rules
from app.manager.fixtures import review

_ABOUT: Final = """\
Kubernetes sends an **AdmissionReview** to one of these paths for each write, and does what the answer says.
*Try it out* sends the example to this very server; nothing is stored.
"""
#: Rules that a description spells out.
_SHOWN: Final = 100


def add_pages(app: AdmissionApp, registry: Registry, *, loopback_only: bool = False) -> None:
    """Serve the pages beside the webhooks; ``loopback_only``: to who sits on this machine."""
    pages: Any = documented(registry)
    app.router.routes.append(Mount("/", LoopbackOnly(pages) if loopback_only else pages))


def documented(registry: Registry) -> FastAPI:
    """An application that shows what is served, and serves none of it."""
    pages = FastAPIOffline(title="pykruise", version="1", description=_ABOUT, redoc_url=None)
    for path in registry.routes:
        webhooks = [webhook for webhook in registry.webhooks if webhook.path == path]
        pages.add_api_route(
            path,
            _answered_before,
            methods=["POST"],
            response_model=AdmissionAnswer,
            responses={400: {"description": "The body is no review; the message says what is wrong, and where."}},
            response_description="Allowed, allowed with a patch, or refused; always with status 200.",
            tags=["changes objects" if webhooks[0].mutating else "judges objects"],
            summary=webhooks[0].summary.rstrip("."),
            description=_description(path, webhooks),
            operation_id=path.strip("/").replace("/", "-"),
            openapi_extra={"requestBody": _body(webhooks)},
        )
    described = pages.openapi

    def openapi() -> dict[str, Any]:
        found = described()
        for operations in found["paths"].values():
            # FastAPI's own answer to a body that fits no model; what reads bodies here answers 400.
            operations["post"]["responses"].pop("422", None)
        return found

    pages.openapi = openapi  # type: ignore[method-assign]
    return pages


async def _answered_before(review: AdmissionReview) -> AdmissionAnswer:
    """Only its signature is used."""
    raise AssertionError(f"{review.request.uid}: webhook paths are answered before FastAPI is asked")


def _body(webhooks: list[Webhook]) -> dict[str, Any]:
    examples = {webhook.name: {"summary": webhook.summary, "value": review(webhook)} for webhook in webhooks}
    return {"content": {"application/json": {"examples": examples}}}


def _description(path: str, webhooks: list[Webhook]) -> str:
    lines = []
    for webhook in webhooks:
        asked = "; ".join(
            f"{', '.join(operation.value for operation in rule.operations)} of {', '.join(rule.resources)} "
            f"({', '.join(group or 'core' for group in rule.groups)}; {', '.join(rule.versions)})"
            for rule in webhook.rules
        )
        lines.append(f"**{webhook.name}**: {webhook.summary.rstrip('.')}. Asked about {asked}.")
    found = rules().get(path, {})
    if found:
        lines.append("Rules it follows:")
        lines.append("\n".join(f"- `{id_}` {text}" for id_, text in list(found.items())[:_SHOWN]))
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more, see docs/behaviours.")
    return "\n\n".join(lines)
