"""Validating webhook of PersistentPodState. [PPS-3 … PPS-8, PPS-40]"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from app.api import names
from app.api.conversion import as_hub
from app.api.webhooks import Judgment, Others, Submitted, former_of, validating, validating_webhook
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.plan import parse_kinds
from app.features.persistentpodstate.types import PersistentPodState
from app.features.persistentpodstate.validation import KNOWN_TARGETS, TARGET, state_errors, warnings
from app.kube.admission import Allowed, Denied, Handler, PolicyRule, Review
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.fielderrors import internal
from app.kube.objects import ConfigMap, decode_config_map
from app.kube.resources import CONFIGMAPS
from app.kube.store import Store
from app.pods.custom_workloads import GroupKind, WhitelistError

VALIDATE: Final = validating_webhook(
    PERSISTENT_POD_STATE,
    "Rejects PersistentPodStates that are invalid or whose workload already has one",
    PolicyRule(("list",), (names.APPS_GROUP,), (PERSISTENT_POD_STATE.plural,)),
    PolicyRule(("get",), ("",), ("configmaps",), (names.CONFIGURATION_CONFIG_MAP,), own_namespace=True),
    when=(),
)
WEBHOOKS: Final = (VALIDATE,)


def handlers(lookups: StateLookups) -> tuple[Handler, ...]:
    """Return the webhook handlers."""
    judging = validating(PERSISTENT_POD_STATE, partial(judge, lookups), code=400)
    return (Handler(VALIDATE, judging, lookups.is_slow),)


async def judge(lookups: StateLookups, given: Submitted) -> Judgment:
    """Validate a PersistentPodState."""
    if given.is_leaving:
        return Allowed()
    state = read(given.object)
    target = state.spec.target_ref
    custom: Collection[GroupKind] = ()
    if target.group_kind not in KNOWN_TARGETS:
        try:
            custom = await lookups.listed()
        except WhitelistError as error:
            # Does not affect built-in targets. [PPS-8]
            return Denied(str(internal(TARGET, str(error))), code=500)
    v1alpha1 = given.version.name == names.V1ALPHA1
    others = await lookups.others(given.review.namespace)
    errors = state_errors(state, former_of(given.review, read), others, custom, v1alpha1=v1alpha1)
    return errors or Allowed(warnings(state, v1alpha1=v1alpha1))


def read(obj: Mapping[str, Any]) -> PersistentPodState:
    """Read a PersistentPodState of either version as the hub model. Raises ConversionError or ValidationError."""
    return PersistentPodState.model_validate(as_hub(PERSISTENT_POD_STATE, obj))


class ClusterLookups:
    """Lookups that read from the API server."""

    def __init__(self, client: Client, own_namespace: str) -> None:
        self._client = client
        self._own_namespace = own_namespace
        self._others = Others(client, PERSISTENT_POD_STATE, PersistentPodState)
        self.is_slow = self._others.are_large

    async def others(self, namespace: str) -> Sequence[PersistentPodState]:
        """List the PersistentPodStates of the namespace. Invalid ones are skipped."""
        return await self._others.of(namespace)

    async def listed(self) -> Collection[GroupKind]:
        """Read the list from the ConfigMap."""
        name = names.CONFIGURATION_CONFIG_MAP
        try:
            found = await self._client.get(CONFIGMAPS, name, self._own_namespace, decode=decode_config_map)
        except NotFound:
            return ()
        return parse_kinds((found.data or {}).get(names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY)).keys()


class StandaloneLookups:
    """Lookups without a cluster, from files."""

    def __init__(self, states: Store[PersistentPodState], config_maps: Store[ConfigMap], own_namespace: str) -> None:
        self._states = states
        self._config_maps = config_maps
        self._own_namespace = own_namespace

    async def others(self, namespace: str) -> Sequence[PersistentPodState]:
        """Return the PersistentPodStates in the files."""
        return self._states.list(namespace)

    def is_slow(self, _review: Review) -> bool:
        """Return False: there are only a few files."""
        return False

    async def listed(self) -> Collection[GroupKind]:
        """Read the list from the file."""
        found = self._config_maps.get(names.CONFIGURATION_CONFIG_MAP, self._own_namespace)
        text = (found.data or {}).get(names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY) if found is not None else None
        return parse_kinds(text).keys()


StateLookups: TypeAlias = StandaloneLookups | ClusterLookups
