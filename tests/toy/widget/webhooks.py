"""The webhooks of Widget."""

from __future__ import annotations

from typing import Final

from app.api.webhooks import Judgment, Submitted, validating, version_to_default
from app.kube.admission import Allowed, Decision, Denied, Handler, Operation, Patched, Review, Rule, Webhook
from app.kube.patches import diff
from tests.toy.widget.kind import WIDGET, with_defaults
from tests.toy.widget.validation import spec_errors

_RULES: Final = (Rule((Operation.CREATE, Operation.UPDATE), (WIDGET.group,), ("v1beta1",), (WIDGET.plural,)),)
MUTATE: Final = Webhook(
    name="mwidget.kb.io",
    path="/mutate-toys-kruise-io-widget",
    mutating=True,
    rules=_RULES,
    summary="Fills in the defaults of a Widget",
)
VALIDATE: Final = Webhook(
    name="vwidget.kb.io",
    path="/validate-toys-kruise-io-widget",
    mutating=False,
    rules=_RULES,
    summary="Refuses Widgets that cannot work",
)
WEBHOOKS: Final = (MUTATE, VALIDATE)


def handlers() -> tuple[Handler, ...]:
    """The declarations with the functions that answer for them."""
    return (Handler(MUTATE, mutate), Handler(VALIDATE, validating(WIDGET, judge)))


def mutate(review: Review) -> Decision:
    """The defaults."""
    given = review.object or {}
    version = version_to_default(WIDGET, given)
    if isinstance(version, Denied):
        return version
    operations = diff(given, with_defaults(given), rule="toy")
    return Patched(tuple(operations)) if operations else Allowed()


async def judge(widget: Submitted) -> Judgment:
    """All mistakes together."""
    return spec_errors(with_defaults(widget.object)["spec"])
