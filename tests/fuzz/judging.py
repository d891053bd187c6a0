"""Sends hostile reviews to the handlers, without HTTP, and judges their answers and exceptions."""

from __future__ import annotations

from typing import Any

from app.admission.registry import Registry
from app.admission.review import Refusal, answer, read_review
from app.kube.admission import Allowed, Decision, Denied, Handler, Patched
from tests.fuzz import objects
from tests.fuzz.service import standalone_service

_DECISIONS = (Allowed, Patched, Denied)


class Judge:
    """Return the registry of a service with the complete SidecarSet."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @classmethod
    async def with_sidecars(cls) -> Judge:
        return cls((await standalone_service(objects.sidecar_set())).registry)

    async def decide(self, path: str, body: bytes) -> Decision | Refusal:
        """Return the answer to a body. Raises what the service would treat as its own failure."""
        review = read_review(body)
        if isinstance(review, Refusal):
            return review
        handler = self._registry.routes[path].handler_for(review)
        decision: Any = handler.decide(review) if isinstance(handler, Handler) else handler
        if not isinstance(decision, _DECISIONS):
            decision = await decision
        answered = answer(review.uid, decision)
        assert isinstance(decision, Patched) or len(answered) < 200_000, f"an answer of {len(answered)} bytes"
        return decision  # type: ignore[no-any-return]


def problem(decision: Decision | Refusal, *named: str) -> str:
    """Return what is wrong with an answer: a rejection must be a 4xx with a message that contains one of ``named``."""
    if isinstance(decision, Allowed | Patched):
        return ""
    if not 400 <= decision.code < 500:
        return f"code {decision.code}: {decision.message[:200]}"
    if not decision.message:
        return "refused without a message"
    if named and not any(name in decision.message for name in named):
        return f"says none of {', '.join(named)}: {decision.message[:200]}"
    return ""
