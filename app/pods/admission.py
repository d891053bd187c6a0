"""Admission of Pods: the shape of a raw Pod, and the mutators and validators that features register."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Final, Protocol, TypeAlias

import msgspec

from app.kube.admission import Denied, Review
from app.kube.fielderrors import shortened
from app.kube.wire import USER_AGENT
from app.pods.admission_draft import PodDraft, PodRefusedError

# Check that a raw Pod has the shape that admission relies on, so that a malformed Pod is refused with a clear message.
# The API server decodes a Pod before it calls the webhook, so this matters only for direct callers of the webhook and
# for Pods kept in files. The structs declare the fields that admission steps read; null in place of a list or map means
# empty.


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part of a Pod; undeclared fields may have any value."""


class _Named(_Part, frozen=True):
    name: str | None = None


class _ValueFrom(_Part, frozen=True):
    field_ref: dict[str, Any] | None = None


class _Env(_Named, frozen=True):
    value: str | None = None
    value_from: _ValueFrom | None = None


class _Mount(_Part, frozen=True):
    mount_path: str | None = None
    sub_path_expr: str | None = None


class _Device(_Part, frozen=True):
    device_path: str | None = None


class _Gate(_Part, frozen=True):
    condition_type: str | None = None


class _Owner(_Part, frozen=True):
    api_version: str | None = None


class _Resources(_Part, frozen=True):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class _Container(_Part, frozen=True):
    name: str
    env: list[_Env] | None = None
    volume_mounts: list[_Mount] | None = None
    volume_devices: list[_Device] | None = None
    resources: _Resources | None = None


class _Manager(_Part, frozen=True):
    manager: str | None = None


class _Metadata(_Part, frozen=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    managed_fields: list[_Manager] | None = None


#: Maximum number of containers. A larger Pod could never run: its status would be too large for etcd.
MAX_CONTAINERS: Final = 10_000
_Containers: TypeAlias = Annotated[list[_Container], msgspec.Meta(max_length=MAX_CONTAINERS)]


class _NodeAffinity(_Part, frozen=True):
    preferred_during_scheduling_ignored_during_execution: list[dict[str, Any]] | None = None
    required_during_scheduling_ignored_during_execution: dict[str, Any] | None = None


class _Affinity(_Part, frozen=True):
    node_affinity: _NodeAffinity | None = None


class _Spec(_Part, frozen=True):
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    containers: _Containers | None = None
    init_containers: _Containers | None = None
    volumes: list[_Named] | None = None
    image_pull_secrets: list[_Named] | None = None
    readiness_gates: list[_Gate] | None = None


class _Pod(_Part, frozen=True):
    metadata: _Metadata | None = None
    spec: _Spec | None = None
    status: dict[str, Any] | None = None


def check_shape(pod: Mapping[str, Any]) -> None:
    """Raise PodRefusedError (400) naming the first malformed field."""
    try:
        msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as error:
        # "Expected `str`, got `int` - at `$.metadata.name`"
        problem, _, path = str(error).replace("`", "").partition(" - at $")
        field = _with_key(pod, path.lstrip("."))
        raise PodRefusedError(f"Pod: {field}: {problem[:1].lower()}{problem[1:]}", code=400) from error


def _with_key(pod: Mapping[str, Any], path: str) -> str:
    """Add the key of the invalid label or annotation to the path, because msgspec omits it."""
    holder = path.removesuffix("[...]")
    if holder not in ("metadata.labels", "metadata.annotations") or holder == path:
        return path
    entries = pod["metadata"][holder.removeprefix("metadata.")]
    wrong = next((key for key, value in entries.items() if not isinstance(value, str)), "")
    return f"{holder}[{shortened(wrong)}]"


class MutatorOrder(IntEnum):
    """Order of the changes to a new Pod. Each step sees the changes of earlier steps, so selectors match patched labels
    and the start order includes sidecars. The gaps leave room for new steps. [PW-6, PW-7]"""

    READINESS_GATE = 10
    #: Assign the Pod to a workload subset and apply the subset's patch.
    SUBSET = 20
    SIDECARS = 30
    #: Make containers start one after another.
    START_ORDER = 40
    #: Assign the Pod to its disruption budget.
    PROTECTION = 50
    #: Add affinity to the node or topology of the Pod's predecessor.
    FORMER_NODE = 60
    LIVENESS = 70
    PROBES = 80
    FIELD_TRACKING = 90


#: The outcome of a step, immediate or awaitable; None continues with the next step.
StepOutcome: TypeAlias = Denied | Awaitable[Denied | None] | None


class PodMutator(Protocol):
    """One admission step. It changes the draft, or refuses the Pod by returning ``Denied`` or raising
    ``PodRefusedError``.

    Most steps have nothing to do for most Pods. A step is therefore a plain function and returns an awaitable only if
    it must query the API server.
    """

    @property
    def order(self) -> int:
        """Position of the step: a :class:`MutatorOrder`, or a value between two of them."""
        ...

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:
        """Run the step. A dry run must not change anything outside the draft."""
        ...


# Validators run before a Pod is deleted, evicted or updated. The first refusal ends the request. All run in one
# webhook, so each request needs only one call, regardless of how many validators apply [PW-20]. The API server calls
# this webhook only for Pods with an annotation that a validator declares.


class ValidatorOrder(IntEnum):
    """Order of the validators. Those that count allowed requests come last, so that refused requests are not counted.
    [PW-20]"""

    JUDGING = 20
    COUNTING = 30


@dataclass(frozen=True, slots=True)
class Guarded:
    """Pods that a validator applies to: those with one of ``annotations``. ``whose`` describes them in plain words."""

    whose: str
    annotations: tuple[str, ...]
    #: Feature gates that enable the validator: ``removal_gate`` for removals, ``change_gate`` for updates of the
    #: spec or of labels with ``label_prefix``. If a gate is empty, the validator ignores requests of that sort.
    removal_gate: str
    change_gate: str = ""
    label_prefix: str = ""


class PodRequestKind(StrEnum):
    """Operation requested for a Pod."""

    DELETE = "DELETE"
    EVICT = "EVICT"
    UPDATE = "UPDATE"


@dataclass(slots=True)
class PodRequest:
    """A request to remove or update a Pod. With ``dry_run``, nothing may be recorded."""

    review: Review
    kind: PodRequestKind
    name: str
    namespace: str
    dry_run: bool
    fetch: Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
    _fetched: list[Mapping[str, Any] | None] = field(default_factory=list)

    async def pod(self) -> Mapping[str, Any] | None:
        """Return the current Pod as raw JSON, or None if it does not exist. For an update, this is the old Pod. For an
        eviction, the Pod is read once from the API server. Raises ``KubeError``."""
        if self.kind is not PodRequestKind.EVICT:
            return self.review.old_object
        if not self._fetched:
            self._fetched.append(await self.fetch(self.namespace, self.name))
        return self._fetched[0]


class PodValidator(Protocol):
    """A check that may refuse a request on a Pod."""

    @property
    def order(self) -> int:
        """Position of the check: a :class:`ValidatorOrder`, or a value between two of them."""
        ...

    async def __call__(self, request: PodRequest) -> Denied | None:
        """Return a refusal, or None to allow. Raises ``KubeError`` if it cannot decide; the request is then refused
        with 400. [PW-21]"""
        ...


# Pods without managed fields. For server-side apply, the API server records in ``metadata.managedFields`` which manager
# wrote which field. On every write of a Pod, it converts and compares the fields of every manager, which is more than
# half of its work in a rollout (bench/RESULTS.md). An object with empty managedFields stays without them in all later
# writes; a later apply finds all existing fields owned by ``before-first-apply``, as on objects older than server-side
# apply. Only admission can clear the field on creation. The controller that creates a Pod requests this through its
# field manager, so no other Pod is affected, and the managed fields of Pods created while the webhook is unavailable
# stay correct.

#: The feature gate that keeps the managed fields of the Pods of CloneSets, StatefulSets and DaemonSets.
GATE: Final = "CloneSetPodManagedFields"
#: Name of the field manager with which controllers create Pods that must have no managed fields.
UNTRACKED: Final = f"{USER_AGENT}-untracked"


class FieldTrackingStep:
    """Clear the managed fields of Pods whose creator requests it."""

    order = MutatorOrder.FIELD_TRACKING

    def __call__(self, draft: PodDraft, review: Review) -> None:  # noqa: ARG002
        """Remove the managed fields if their only entry belongs to the requesting creator."""
        fields = draft.managed_fields
        if len(fields) == 1 and fields[0].get("manager") == UNTRACKED:
            draft.remove_managed_fields(GATE)
