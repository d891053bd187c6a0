"""The product's ``/mutate-pod`` on one case, with a fixed clock, random numbers and names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import orjson

from app.admission.pod_webhooks import pod_handler
from app.api.names import SIDECARSET_HASH, SIDECARSET_HASH_WITHOUT_IMAGE
from app.features.launchpriority.feature import LaunchPriorityStep
from app.features.podreadiness.feature import ReadinessGateStep
from app.features.sidecarset.defaults import with_defaults
from app.features.sidecarset.hashes import sidecarset_hashes
from app.features.sidecarset.injection.selection import SidecarSetIndex
from app.features.sidecarset.pod_admission import SidecarSetStep
from app.kube.admission import Denied, Operation, Patched
from app.kube.clock import SystemClock
from app.kube.objects import ControllerRevision, decode_controller_revision
from tests.kit.features import decided
from tests.kit.objects import pod_review
from tests.property.case import MANAGER_NAMESPACE, NAME_SUFFIX, NOW, Case, Json
from tests.property.oracle_hash import ALPHABET


@dataclass(frozen=True)
class Answer:
    """The product's decision: a rejection, or operations with the rule of each. No operations: allowed unchanged."""

    refused: str | None = None
    operations: list[Json] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)


def defaulted(raw: Json) -> Json:
    """Return a SidecarSet (v1beta1) as its webhook stores it."""
    one = with_defaults(raw)
    hashes = sidecarset_hashes(one["spec"].get("containers"), one["spec"].get("initContainers"))
    annotations = {SIDECARSET_HASH: hashes.hash, SIDECARSET_HASH_WITHOUT_IMAGE: hashes.without_image}
    one["metadata"] = {**one["metadata"], "annotations": {**(one["metadata"].get("annotations") or {}), **annotations}}
    return one


def answer(case: Case) -> Answer:
    """Return the decision on this case's Pod."""
    decide = pod_handler(
        (
            ReadinessGateStep(every_pod=case.readiness_gate_for_all),
            SidecarSetStep(
                _index(case), _Lookups(case), _FixedClock(), lambda: case.draw, sort_by_name=case.sort_by_name
            ),
            LaunchPriorityStep(_FixedNames()),
        )
    ).decide
    review = pod_review(
        Operation.CREATE,
        case.pod,
        namespace=case.request_namespace,
        dry_run=case.dry_run,
        groups=("system:nodes", "system:authenticated") if case.by_node else ("system:authenticated",),
    )
    decision = decided(decide(review))
    if isinstance(decision, Denied):
        return Answer(refused=decision.message)
    if not isinstance(decision, Patched):
        return Answer()
    # Encode and decode, so that the result does not share values with prepared sets.
    operations = orjson.loads(orjson.dumps([o.as_json() for o in decision.operations]))
    return Answer(operations=operations, rules=[o.rule for o in decision.operations])


def _index(case: Case) -> SidecarSetIndex:
    index = SidecarSetIndex()
    for one in case.sets:
        index.update(one)
    if index.unusable:
        raise AssertionError(f"case {case.seed}: sets the product cannot use: {dict(index.unusable)}")
    return index


class _Lookups:
    """Lookups. With an even seed, the caches are complete; with an odd seed, only the API server has the objects."""

    def __init__(self, case: Case) -> None:
        self._stale = case.seed % 2 == 1
        self._labels = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in case.namespaces}
        self._revisions: dict[str, list[ControllerRevision]] = {}
        for raw in case.revisions:
            if raw["metadata"]["namespace"] == MANAGER_NAMESPACE:
                name = raw["metadata"]["labels"]["kruise.io/sidecarset-name"]
                self._revisions.setdefault(name, []).append(decode_controller_revision(json.dumps(raw).encode()))

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        return None if self._stale else self._labels.get(namespace)

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        return () if self._stale else self._revisions.get(set_name, ())

    async def newer_sidecarsets(self, _set_names: Sequence[str]) -> Iterable[Mapping[str, object]]:
        return ()

    async def live_namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        return self._labels.get(namespace)

    async def live_revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        return self._revisions.get(set_name, ())


class _FixedClock(SystemClock):
    def now(self) -> datetime:
        return datetime.fromisoformat(NOW)


class _FixedNames:
    """Returns the characters of ``NAME_SUFFIX`` in order."""

    def __init__(self) -> None:
        self._drawn = 0

    def choice(self, seq: Sequence[str], /) -> str:
        assert "".join(seq) == ALPHABET
        self._drawn += 1
        return NAME_SUFFIX[(self._drawn - 1) % len(NAME_SUFFIX)]
