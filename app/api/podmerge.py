"""How a strategic merge patch is merged into a Pod: the merge keys of the types within it, as of Kubernetes 1.34."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class PodType:
    """A type within a Pod, as far as a patch has to know it (see :class:`app.kube.strategic.MergeType`)."""

    fields: Mapping[str, PodType] = field(default_factory=dict)
    merge_key: str = ""
    patch_strategies: frozenset[str] = frozenset()
    items: PodType | None = None
    is_object: bool = True

    def child(self, name: str) -> PodType | None:
        """The field of that name, where a patch has to know it."""
        return self.fields.get(name)


_MERGE: Final = frozenset({"merge"})
_RETAIN_KEYS: Final = frozenset({"retainKeys"})
_TEXT: Final = PodType(is_object=False)


def _merged(key: str, **fields: PodType) -> PodType:
    return PodType(merge_key=key, patch_strategies=_MERGE, items=PodType(fields), is_object=False)


_CONTAINERS: Final = _merged(
    "name",
    ports=_merged("containerPort"),
    env=_merged("name"),
    volumeMounts=_merged("mountPath"),
    volumeDevices=_merged("devicePath"),
)
#: A volume's source is of one kind: who names another replaces it.
_VOLUMES: Final = PodType(
    merge_key="name", patch_strategies=_MERGE | _RETAIN_KEYS, items=PodType(patch_strategies=_RETAIN_KEYS)
)
_SPEC: Final = PodType(
    {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "volumes": _VOLUMES,
        "imagePullSecrets": _merged("name"),
        "hostAliases": _merged("ip"),
        "topologySpreadConstraints": _merged("topologyKey"),
        "resourceClaims": _merged("name"),
        "schedulingGates": _merged("name"),
    }
)
_METADATA: Final = PodType(
    {
        "ownerReferences": _merged("uid"),
        "finalizers": PodType(patch_strategies=_MERGE, items=_TEXT, is_object=False),
    }
)
#: A Pod, or a Pod template.
POD: Final = PodType({"metadata": _METADATA, "spec": _SPEC})
