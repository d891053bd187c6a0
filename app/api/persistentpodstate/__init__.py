"""PersistentPodState: where the Pods of a workload ran. Fields and conversion."""

from typing import Final

from app.api import names
from app.api.kind import Access, KindDefinition, Version
from app.api.persistentpodstate.conversion import canonical, to_v1alpha1, to_v1beta1
from app.api.persistentpodstate.types import (
    PersistentPodState,
    PersistentPodStateSpec,
    PersistentPodStateV1Alpha1,
    PodState,
)

PERSISTENT_POD_STATE: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="PersistentPodState",
    plural="persistentpodstates",
    access=Access("adds node affinity to new Pods of its namespace", view=True, edit=True),
    versions=(
        Version(names.V1BETA1, PersistentPodState, canonical=canonical),
        Version(
            names.V1ALPHA1,
            PersistentPodStateV1Alpha1,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical,
        ),
    ),
)

__all__ = [
    "PERSISTENT_POD_STATE",
    "PersistentPodState",
    "PersistentPodStateSpec",
    "PersistentPodStateV1Alpha1",
    "PodState",
]
