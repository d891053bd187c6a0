"""Advanced StatefulSet: Pods with ordinals, updated by replacing them or in place. Fields, defaults, conversion."""

from app.api.statefulset.definition import STATEFUL_SET
from app.api.statefulset.types import StatefulSet, StatefulSetSpec, StatefulSetStatus, StatefulSetV1Alpha1

__all__ = ["STATEFUL_SET", "StatefulSet", "StatefulSetSpec", "StatefulSetStatus", "StatefulSetV1Alpha1"]
