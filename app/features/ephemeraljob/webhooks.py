"""EphemeralJob webhook, which rejects invalid containers. [EJ-1, EJ-2]"""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.webhooks import SPEC_CHANGED, Judgment, Submitted, validating
from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.ephemeraljob.validation import container_errors, warnings
from app.kube.admission import Allowed, Handler, Operation, Rule, Webhook

VALIDATE: Final = Webhook(
    name="vephemeraljobs.kb.io",
    path="/validate-apps-kruise-io-v1alpha1-ephemeraljob",
    mutating=False,
    rules=(
        Rule((Operation.CREATE, Operation.UPDATE), (names.APPS_GROUP,), (names.V1ALPHA1,), (EPHEMERAL_JOB.plural,)),
    ),
    match_conditions=(SPEC_CHANGED,),
    summary="Rejects EphemeralJobs with invalid containers",
)
WEBHOOKS: Final = (VALIDATE,)


def handlers() -> tuple[Handler, ...]:
    """Return the webhook declaration with its handler."""
    return (Handler(VALIDATE, validating(EPHEMERAL_JOB, judge, code=400)),)


async def judge(job: Submitted) -> Judgment:
    """Validate an EphemeralJob."""
    if job.is_leaving:
        return Allowed()
    spec = job.object["spec"]
    return container_errors(spec["template"].get("ephemeralContainers") or []) or Allowed(tuple(warnings(spec)))
