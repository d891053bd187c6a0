"""Rights: which of those that this manager declares the API server does not grant it.

A right that is missing shows late, in a message about one object. So the manager asks at its start and now and then
what it may do, names what is missing, and goes on with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Final

import msgspec

from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.resources import SELFSUBJECTRULESREVIEWS
from app.manager.metrics import ManagerMetrics

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
#: Asked for what is needed everywhere: a namespace where nothing is granted to us alone.
_ANY_NAMESPACE: Final = "default"
_NOWHERE: Final[Mapping[str, Sequence[Granted]]] = MappingProxyType({})


class Granted(msgspec.Struct, frozen=True, rename="camel"):
    """One rule of a SelfSubjectRulesReview's answer."""

    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []

    def covers(self, verb: str, group: str, resource: str, name: str) -> bool:
        """Whether it allows that; ``name`` empty: to all objects."""
        plural, _, subresource = resource.partition("/")
        resources = {"*", resource} | ({f"*/{subresource}", f"{plural}/*"} if subresource else set())
        return (
            not {"*", verb}.isdisjoint(self.verbs)
            and not {"*", group}.isdisjoint(self.api_groups)
            and not resources.isdisjoint(self.resources)
            and (not self.resource_names or name in self.resource_names)
        )


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    resource_rules: list[Granted] | None = None
    incomplete: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def missing_rights(
    declared: Iterable[PolicyRule],
    everywhere: Sequence[Granted],
    here: Sequence[Granted],
    elsewhere: Mapping[str, Sequence[Granted]] = _NOWHERE,
) -> list[str]:
    """What is declared and not granted, one line per resource. Pure.

    ``everywhere``: what is granted in any namespace, ``here``: in the manager's own, ``elsewhere``: in others by name.
    """
    verbs: dict[str, dict[str, None]] = {}
    for rule in declared:
        granted = here if rule.own_namespace else elsewhere[rule.namespace] if rule.namespace else everywhere
        for verb, group, resource, name in product(rule.verbs, rule.groups, rule.resources, rule.names or ("",)):
            if not any(one.covers(verb, group, resource, name) for one in granted):
                what = f"{resource}.{group}" if group else resource
                own, other = rule.own_namespace, rule.namespace
                where = " in the manager's namespace" if own else f" in namespace {other}" if other else ""
                verbs.setdefault(f"{what}{f' {name}' if name else ''}{where}", {})[verb] = None
    return [f"{', '.join(found)} {what}" for what, found in sorted(verbs.items())]


class Rights:
    """Asks again and again, and tells of changes."""

    def __init__(
        self, client: Client, own_namespace: str, declared: Sequence[PolicyRule], metrics: ManagerMetrics
    ) -> None:
        self._client = client
        self._own_namespace = own_namespace
        self._declared = declared
        self._metrics = metrics
        self._reported: list[str] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.check()
            await self._client.clock.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Ask once. An API server that does not say what it allows, or not all of it, is taken to allow it."""
        try:
            everywhere = await self._granted(_ANY_NAMESPACE)
            here = await self._granted(self._own_namespace)
            others = sorted({rule.namespace for rule in self._declared if rule.namespace})
            elsewhere = {name: await self._granted(name) for name in others}
        except KubeError as error:
            logger.info("what we may do is not known: %s", error)
            return
        known = {name: granted for name, granted in elsewhere.items() if granted is not None}
        if everywhere is None or here is None or len(known) < len(elsewhere):
            missing = []
        else:
            missing = missing_rights(self._declared, everywhere, here, known)
        self._metrics.missing_rights.set(len(missing))
        for line in missing:
            if line not in self._reported:
                logger.error(
                    "a right is missing, everything else goes on (deploy/rbac.yaml, deploy/rbac-gates): %s", line
                )
        if self._reported and not missing:
            logger.info("all rights are granted now")
        self._reported = missing

    async def _granted(self, namespace: str) -> list[Granted] | None:
        review = {
            "apiVersion": SELFSUBJECTRULESREVIEWS.api_version,
            "kind": SELFSUBJECTRULESREVIEWS.kind,
            "spec": {"namespace": namespace},
        }
        answer = await self._client.create(SELFSUBJECTRULESREVIEWS, review, decode=_decode)
        return None if answer.status.incomplete else answer.status.resource_rules or []


_decode: Final = msgspec.json.Decoder(_Review).decode
