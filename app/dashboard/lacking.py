"""Which objects of a section each Pod lacks, and which Pods lack an object: kept one change at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.kube.objects import Pod
from app.kube.resources import ObjectKey
from app.pods.predicates import is_active
from app.slices.dashboard import PodJudge, Stored


class Lacking:
    """What a judge says of all Pods."""

    def __init__(self, judge: PodJudge) -> None:
        """No Pod is known yet."""
        self._judge = judge
        self._objects: dict[ObjectKey, tuple[str, ...]] = {}
        self._pods: dict[str, set[ObjectKey]] = {}

    def object_changed(self, name: str, stored: Stored | None) -> None:
        """An object is new, changed or (None) gone; what Pods lack is to be judged anew."""
        if stored is None:
            self._judge.remove(name)
        else:
            self._judge.update(stored)

    def judge(self, key: ObjectKey, pod: Pod | None, namespace_labels: Mapping[str, str] | None) -> Collection[str]:
        """Note what the Pod lacks; nothing if it is gone, or its namespace is not known.

        Returns the objects that other Pods lack than before.
        """
        lacks: tuple[str, ...] = ()
        if pod is not None and namespace_labels is not None and is_active(pod):
            lacks = tuple(self._judge.lacking(pod, namespace_labels))
        before = self._objects.get(key, ())
        if lacks == before:
            return ()
        for name in before:
            self._pods[name].discard(key)
        for name in lacks:
            self._pods.setdefault(name, set()).add(key)
        if lacks:
            self._objects[key] = lacks
        else:
            self._objects.pop(key, None)
        return {*before, *lacks}

    def pods(self, name: str) -> Collection[ObjectKey]:
        """The Pods that lack an object."""
        return self._pods.get(name, ())
