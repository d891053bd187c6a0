"""Validating webhook of PersistentPodState. [PPS-3 … PPS-8, PPS-40]"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.conversion import as_hub
from app.api.webhooks import Judgment, Submitted, former_of, validating, validating_webhook
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.plan import parse_kinds
from app.features.persistentpodstate.pod_admission import STATES
from app.features.persistentpodstate.types import PersistentPodState
from app.features.persistentpodstate.validation import KNOWN_TARGETS, TARGET, state_errors, warnings
from app.framework.live import LiveObjects
from app.kube.admission import Allowed, Denied, Handler, PolicyRule
from app.kube.fielderrors import internal
from app.pods.custom_workloads import GroupKind, WhitelistError

VALIDATE: Final = validating_webhook(
    PERSISTENT_POD_STATE,
    "Rejects PersistentPodStates that are invalid or whose workload already has one",
    PolicyRule(("list",), (names.APPS_GROUP,), (PERSISTENT_POD_STATE.plural,)),
    PolicyRule(("get",), ("",), ("configmaps",), (names.CONFIGURATION_CONFIG_MAP,), own_namespace=True),
    when=(),
)
WEBHOOKS: Final = (VALIDATE,)


def handlers(live: LiveObjects, own_namespace: str) -> tuple[Handler, ...]:
    """Return the webhook handlers."""
    judging = validating(PERSISTENT_POD_STATE, partial(judge, live, own_namespace), code=400)
    return (Handler(VALIDATE, judging, live.are_large),)


async def judge(live: LiveObjects, own_namespace: str, given: Submitted) -> Judgment:
    """Validate a PersistentPodState."""
    if given.is_leaving:
        return Allowed()
    state = read(given.object)
    target = state.spec.target_ref
    custom: Collection[GroupKind] = ()
    if target.group_kind not in KNOWN_TARGETS:
        try:
            custom = await _listed(live, own_namespace)
        except WhitelistError as error:
            # An invalid whitelist does not affect built-in targets. [PPS-8]
            return Denied(str(internal(TARGET, str(error))), code=500)
    v1alpha1 = given.version.name == names.V1ALPHA1
    others = await live.list(STATES, given.review.namespace)
    errors = state_errors(state, former_of(given.review, read), others, custom, v1alpha1=v1alpha1)
    return errors or Allowed(warnings(state, v1alpha1=v1alpha1))


def read(obj: Mapping[str, Any]) -> PersistentPodState:
    """Read a PersistentPodState of either version as the hub model. Raises ConversionError or ValidationError."""
    return PersistentPodState.model_validate(as_hub(PERSISTENT_POD_STATE, obj))


async def _listed(live: LiveObjects, own_namespace: str) -> Collection[GroupKind]:
    """Return the kinds in the operator's whitelist. Raises WhitelistError if it is invalid."""
    return parse_kinds(await live.configured(names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY, own_namespace)).keys()
