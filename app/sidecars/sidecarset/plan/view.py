"""A SidecarSet in the words of the plan, prepared once per change of the set. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.api import names
from app.api.gojson import GoTypeError
from app.api.sidecarset import SidecarSet
from app.api.sidecarset.types import NOT_UPDATE
from app.api.update_order import UpdatePriorityStrategy, UpdateScatterTerm
from app.kube.selectors import Selector, SelectorError, compile_selector
from app.sidecars.sidecarset.hashing import SidecarSetHashes, sidecarset_hashes
from app.sidecars.sidecarset.pod_metadata import MetadataPatch

_NOTHING: Final = compile_selector(
    {"matchExpressions": [{"key": "never", "operator": word} for word in ("Exists", "DoesNotExist")]}
)


@dataclass(frozen=True, slots=True)
class HotSidecar:
    """A sidecar with a twin (SS-45): the base name, the image the idle one runs, and the one the other shall run."""

    name: str
    empty_image: str
    image: str = ""

    @property
    def first(self) -> str:
        """The twin that works in a fresh Pod."""
        return f"{self.name}-1"

    @property
    def second(self) -> str:
        """The twin that idles in a fresh Pod."""
        return f"{self.name}-2"

    def other(self, twin: str) -> str:
        """The twin of a twin."""
        return self.second if twin == self.first else self.first


@dataclass(frozen=True, slots=True)
class Strategy:
    """``spec.updateStrategy``: which Pods are updated, how many at once, in which order."""

    rolling: bool = False
    paused: bool = False
    #: None: every Pod.
    selector: Selector | None = None
    partition: int | str | None = None
    max_unavailable: int | str | None = None
    priority: UpdatePriorityStrategy | None = None
    scatter: Sequence[UpdateScatterTerm] | None = None


@dataclass(frozen=True, slots=True)
class SetView:
    """What judging and updating Pods needs of a SidecarSet."""

    name: str
    hash: str
    #: SS-35: an empty one matches nothing here.
    selector: Selector
    #: None: every namespace.
    namespaces: Selector | None
    #: Every container the set brings, by the name it has in a Pod: twins by their own. Init containers do not count.
    sidecars: frozenset[str]
    hot: tuple[HotSidecar, ...] = ()
    hash_without_image: str = ""
    #: Sidecar without a twin → the image it shall run.
    images: Mapping[str, str] = field(default_factory=dict)
    #: SS-58
    sidecar_list: tuple[str, ...] = ()
    patches: tuple[MetadataPatch, ...] = ()
    strategy: Strategy = Strategy()


def set_view(sidecar_set: SidecarSet) -> SetView:
    """The view of a set. Raises ``SelectorError`` for a selector that admission would have refused."""
    spec = sidecar_set.spec
    containers = spec.containers or ()
    hot = tuple(HotSidecar(c.name, c.upgrade_strategy.hot_upgrade_empty_image, c.image) for c in containers if c.hot)
    images = {container.name: container.image for container in containers if not container.hot}
    twins = {twin for sidecar in hot for twin in (sidecar.first, sidecar.second)}
    lasting = {container.name for container in spec.init_containers or () if container.keeps_running}
    hashes = _hashes(sidecar_set)
    return SetView(
        name=sidecar_set.name,
        hash=hashes.hash,
        selector=compile_selector(spec.selector),
        namespaces=compile_selector(spec.namespace_selector) if spec.namespace_selector is not None else None,
        sidecars=frozenset(twins | images.keys()),
        hot=hot,
        hash_without_image=hashes.without_image,
        images=images,
        sidecar_list=tuple(sorted({container.name for container in containers} | lasting)),
        patches=tuple(
            MetadataPatch(sidecar_set.name, patch.patch_policy or "Retain", tuple(sorted(patch.annotations.items())))
            for patch in spec.patch_pod_metadata or ()
            if patch.annotations
        ),
        strategy=_strategy(sidecar_set),
    )


def _strategy(sidecar_set: SidecarSet) -> Strategy:
    given = sidecar_set.spec.update_strategy
    return Strategy(
        rolling=given.type != NOT_UPDATE,
        paused=given.paused,
        selector=_update_selector(given.selector),
        partition=given.partition,
        max_unavailable=1 if given.max_unavailable is None else given.max_unavailable,
        priority=given.priority_strategy,
        scatter=given.scatter_strategy,
    )


def _update_selector(given: Mapping[str, Any] | None) -> Selector | None:
    """SS-92: no selector selects every Pod, one that cannot be read none."""
    if given is None:
        return None
    try:
        return compile_selector(given)
    except SelectorError:
        return _NOTHING


def _hashes(sidecar_set: SidecarSet) -> SidecarSetHashes:
    annotations = sidecar_set.metadata.annotations
    stored = annotations.get(names.SIDECARSET_HASH), annotations.get(names.SIDECARSET_HASH_WITHOUT_IMAGE)
    if all(stored):
        return SidecarSetHashes(stored[0] or "", stored[1] or "")
    # Written past admission, which would have put them there (SS-8).
    spec = sidecar_set.spec.to_dict()
    try:
        computed = sidecarset_hashes(spec.get("containers"), spec.get("initContainers"))
    except GoTypeError:
        return SidecarSetHashes(stored[0] or "", stored[1] or "")
    return SidecarSetHashes(stored[0] or computed.hash, stored[1] or computed.without_image)
