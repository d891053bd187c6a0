"""The webhooks of Widget."""

from __future__ import annotations

from typing import Final

from app.api.webhooks import Judgment, Submitted, completed, mutating_webhook, validating, validating_webhook
from app.kube.admission import Decision, Handler, Review
from tests.toy.widget.defaults import with_defaults
from tests.toy.widget.kind import SPECS, WIDGET
from tests.toy.widget.validation import spec_errors

MUTATE: Final = mutating_webhook(WIDGET, "Fills in the defaults of a Widget")
VALIDATE: Final = validating_webhook(WIDGET, "Rejects invalid Widgets")
WEBHOOKS: Final = (MUTATE, VALIDATE)


def handlers() -> tuple[Handler, ...]:
    """Return the webhook handlers."""
    return (Handler(MUTATE, mutate), Handler(VALIDATE, validating(WIDGET, judge)))


def mutate(review: Review) -> Decision:
    """Fill in the defaults."""
    return completed(review, WIDGET, SPECS, with_defaults, rule="toy")


async def judge(widget: Submitted) -> Judgment:
    """Return all errors together."""
    return spec_errors(with_defaults(widget.object)["spec"])
