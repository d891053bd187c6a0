"""EphemeralJob webhook: rejects containers that no Pod would accept. [EJ-1, EJ-2]"""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.gojson import GoTypeError
from app.api.webhooks import SPEC_CHANGED, is_leaving, judged, version_to_judge
from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.ephemeraljob.validation import container_errors, warnings
from app.kube.admission import Allowed, Decision, Denied, Handler, Operation, Review, Rule, Webhook
from app.kube.fielderrors import aggregate

VALIDATE: Final = Webhook(
    name="vephemeraljobs.kb.io",
    path="/validate-apps-kruise-io-v1alpha1-ephemeraljob",
    mutating=False,
    rules=(
        Rule((Operation.CREATE, Operation.UPDATE), (names.APPS_GROUP,), (names.V1ALPHA1,), (EPHEMERAL_JOB.plural,)),
    ),
    match_conditions=(SPEC_CHANGED,),
    summary="Rejects EphemeralJobs with containers that no Pod would accept",
)
WEBHOOKS: Final = (VALIDATE,)


def handlers() -> tuple[Handler, ...]:
    """Return the webhook declaration with its handler."""
    return (Handler(VALIDATE, validate),)


def validate(review: Review) -> Decision:
    """Validate and report all errors together."""
    given = judged(review.object)
    version = version_to_judge(EPHEMERAL_JOB, given)
    if isinstance(version, Denied):
        return version
    if is_leaving(review):
        return Allowed()
    spec = given["spec"]
    try:
        errors = container_errors(spec["template"].get("ephemeralContainers") or [])
    except GoTypeError as error:
        return Denied(str(error), code=400)
    return Denied(aggregate(errors), code=400) if errors else Allowed(tuple(warnings(spec)))
