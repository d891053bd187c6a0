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
from app.pods.draft import PodDraft, PodRefusedError

# Whether a raw Pod has the shape admission relies on, so that a malformed one gets a clear refusal.
#
# The API server decodes a Pod before it asks us, so this speaks to whoever calls the webhook by hand or keeps Pods in
# files. The structs name what the steps of Pod admission read; null where a list or a map may stand means empty.


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part of a Pod; fields that are not named may hold anything."""


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


#: The status of that many containers is larger than what etcd stores: a Pod with more could never run.
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
    """Raises PodRefusedError (400) naming the first field that does not hold what a Pod has there."""
    try:
        msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as error:
        # "Expected `str`, got `int` - at `$.metadata.name`"
        problem, _, path = str(error).replace("`", "").partition(" - at $")
        field = _with_key(pod, path.lstrip("."))
        raise PodRefusedError(f"Pod: {field}: {problem[:1].lower()}{problem[1:]}", code=400) from error


def _with_key(pod: Mapping[str, Any], path: str) -> str:
    """The path with the key of the wrong label or annotation, which msgspec leaves out."""
    holder = path.removesuffix("[...]")
    if holder not in ("metadata.labels", "metadata.annotations") or holder == path:
        return path
    entries = pod["metadata"][holder.removeprefix("metadata.")]
    wrong = next((key for key, value in entries.items() if not isinstance(value, str)), "")
    return f"{holder}[{shortened(wrong)}]"


class MutatorOrder(IntEnum):
    """PW-6, PW-7: what is done to a new Pod, and when. Labels patched by one step are matched by the next, and the
    start order sees the sidecars. There is room between any two."""

    READINESS_GATE = 10
    #: The subset of its workload that it counts in, with that subset's patch.
    SUBSET = 20
    SIDECARS = 30
    #: Containers that start one after another.
    START_ORDER = 40
    #: Who has a say when it is to go.
    PROTECTION = 50
    #: Back to where its predecessor ran.
    FORMER_NODE = 60
    LIVENESS = 70
    PROBES = 80
    FIELD_TRACKING = 90


#: What a step says of a Pod, at once or after it has waited; None: let the next one look at it.
StepOutcome: TypeAlias = Denied | Awaitable[Denied | None] | None


class PodMutator(Protocol):
    """One step. It changes the draft, or refuses the Pod: by ``Denied``, or by raising ``PodRefusedError``.

    Nearly every step of nearly every Pod knows at once that it has nothing to do. So a step is a plain function; only
    where it has to ask the API server does it return something to await.
    """

    @property
    def order(self) -> int:
        """When it is taken: of :class:`MutatorOrder`, or between two of them."""
        ...

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:
        """Take the step. A dry run must change nothing outside the draft."""
        ...


# Guards of Pods: who is asked before a Pod is deleted, evicted or changed. Each looks; the first refusal ends it.
#
# All answer in one place (PW-20), so that a Pod costs one call whoever cares for it. The API server asks only about
# Pods that carry the annotation of one of them.


class ValidatorOrder(IntEnum):
    """PW-20: who is asked first. Who only keeps books comes last: what was refused before is not written down."""

    JUDGING = 20
    COUNTING = 30


@dataclass(frozen=True, slots=True)
class Guarded:
    """Which Pods a guard is asked about. ``whose``: theirs, in plain words; ``annotations``: a Pod of theirs has one of
    these."""

    whose: str
    annotations: tuple[str, ...]
    #: The gate with which it is asked before a Pod goes, and the one with which it is asked before a Pod changes: its
    #: spec, or labels that begin with these words (empty: never).
    removal_gate: str
    change_gate: str = ""
    label_prefix: str = ""


class PodRequestKind(StrEnum):
    """What is to be done to a Pod."""

    DELETE = "DELETE"
    EVICT = "EVICT"
    UPDATE = "UPDATE"


@dataclass(slots=True)
class PodRequest:
    """A Pod that is to go, or to change. ``dry_run``: nothing may be written down."""

    review: Review
    kind: PodRequestKind
    name: str
    namespace: str
    dry_run: bool
    fetch: Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
    _fetched: list[Mapping[str, Any] | None] = field(default_factory=list)

    async def pod(self) -> Mapping[str, Any] | None:
        """The Pod as it is now, as raw JSON; None where there is none. The old one where it is to change. That of an
        eviction is read from the API server, once. Raises ``KubeError``."""
        if self.kind is not PodRequestKind.EVICT:
            return self.review.old_object
        if not self._fetched:
            self._fetched.append(await self.fetch(self.namespace, self.name))
        return self._fetched[0]


class PodValidator(Protocol):
    """One who is asked."""

    @property
    def order(self) -> int:
        """When it is asked: of :class:`ValidatorOrder`, or between two of them."""
        ...

    async def __call__(self, request: PodRequest) -> Denied | None:
        """A refusal, or nothing. Raises ``KubeError`` where it cannot say, which refuses with 400 (PW-21)."""
        ...


# Pods without managed fields: what nobody looks at need not be worked out with every write.
#
# An API server notes in ``metadata.managedFields`` who wrote which field, for server-side apply. With each write of a
# Pod it converts and compares the fields of every manager: more than half of its work in a roll-out
# (bench/RESULTS.md). An object whose account is empty is left without one by all later writes; who applies to it finds
# all that is there owned by ``before-first-apply``, as on objects older than server-side apply.
#
# On creation only admission can empty the account. The controller that creates a Pod asks for it by its field manager,
# so that no other Pod is touched, and the account of Pods created while no webhook answers says nothing untrue.

#: The feature gate that keeps the managed fields of a CloneSet's Pods.
GATE: Final = "CloneSetPodManagedFields"
#: The field manager of a creation that asks for a Pod without managed fields.
UNTRACKED: Final = f"{USER_AGENT}-untracked"


class FieldTrackingStep:
    """Empties the account of Pods whose creator asks for it."""

    order = MutatorOrder.FIELD_TRACKING

    __slots__ = ()

    def __call__(self, draft: PodDraft, review: Review) -> None:  # noqa: ARG002
        """Take the managed fields away where their only entry is the asking creator's."""
        fields = draft.managed_fields
        if len(fields) == 1 and fields[0].get("manager") == UNTRACKED:
            draft.remove_managed_fields(GATE)
