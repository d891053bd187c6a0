"""Selects the sets that apply to a Pod, and their revisions (SS-35 to SS-39, SS-68 to SS-70, SS-77)."""

from __future__ import annotations

from tests.property.case import MANAGER_NAMESPACE, Json
from tests.property.oracle_basics import (
    CUSTOM_VERSION,
    HASH,
    HASH_WITHOUT_IMAGE,
    NAMESPACE_NAME,
    Applied,
    Refused,
    State,
    matches,
)
from tests.property.oracle_hash import set_hashes


class Choice:
    """Selects the sets of the case."""

    def __init__(self, state: State) -> None:
        self.state = state

    def candidates(self) -> list[Json]:
        """Return sets that select the namespace, then sets for all namespaces, each by name. [SS-36, SS-37]"""
        here, everywhere = [], []
        for one in sorted(self.state.case.sets, key=lambda s: s["metadata"]["name"]):
            selector = one["spec"].get("namespaceSelector")
            names = None
            if selector is not None:
                if NAMESPACE_NAME in (selector.get("matchLabels") or {}):
                    names = [selector["matchLabels"][NAMESPACE_NAME]]
                else:
                    for term in selector.get("matchExpressions") or []:
                        if term["key"] == NAMESPACE_NAME and term["operator"] == "In" and names is None:
                            names = term["values"]
            if names is None:
                everywhere.append(one)
            elif self.state.namespace in names:
                here.append(one)
        if here and everywhere and here[-1]["metadata"]["name"] > everywhere[0]["metadata"]["name"]:
            self.state.branches.hit("SS-36 named namespace before cluster scope")
        return here + everywhere

    def selects(self, one: Json) -> bool:
        """Return whether a set matches the Pod. [SS-35]"""
        scope, selector = one["spec"].get("namespaceSelector"), one["spec"].get("selector")
        if scope is not None:
            found = [n for n in self.state.case.namespaces if n["metadata"]["name"] == self.state.namespace]
            keys = {*(scope.get("matchLabels") or {}), *(t["key"] for t in scope.get("matchExpressions") or [])}
            if keys == {NAMESPACE_NAME} and "NotIn" not in str(scope):
                # SS-39: the namespace matches by name even if its object is unknown.
                labels = {NAMESPACE_NAME: self.state.namespace}
            elif found:
                labels = found[0]["metadata"].get("labels") or {}
            else:
                return False
            if not matches(scope, labels):
                return False
        if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
            return False
        return matches(selector, self.state.pod["metadata"].get("labels") or {})

    def applied(self) -> list[Applied]:
        chosen: list[Applied] = []
        paused: list[Json] = []
        for one in self.candidates():
            if not self.selects(one):
                continue
            if one["metadata"].get("deletionTimestamp"):
                self.state.branches.hit("SS-39 being deleted")
            elif (one["spec"].get("injectionStrategy") or {}).get("paused"):
                self.state.branches.hit("SS-38 paused")
                paused.append(one)
            else:
                chosen.append(self.revision_for(one))
        bases = {base for c in chosen if (base := self.base_of(c.annotations))}
        if {base for p in paused if (base := self.base_of(p["metadata"].get("annotations") or {}))}:
            self.state.branches.hit("SS-77 paused canary")
        if bases & {c.name for c in chosen}:
            self.state.branches.hit("SS-77 base left out")
        return [c for c in chosen if c.name not in bases]

    @staticmethod
    def base_of(annotations: Json) -> str:
        if annotations.get("apps.kruise.io/sidecarset-canary") != "true":
            return ""
        return str(annotations.get("apps.kruise.io/sidecarset-base") or "")

    def revision_for(self, one: Json) -> Applied:
        """Return the set with the spec of the revision that applies. [SS-68 … SS-70]"""
        spec, name = one["spec"], one["metadata"]["name"]
        annotations = one["metadata"].get("annotations") or {}
        wanted = (spec.get("injectionStrategy") or {}).get("revision") or {}
        found: Json | None = None
        if wanted.get("revisionName") is not None:
            self.state.branches.hit("SS-68 by name")
            named = [r for r in self.revisions() if r["metadata"]["name"] == wanted["revisionName"]]
            found = named[0] if named else None
        elif wanted.get("customVersion") is not None:
            self.state.branches.hit("SS-68 by custom version")
            labels = {"kruise.io/sidecarset-name": name, CUSTOM_VERSION: wanted["customVersion"]}
            same = [r for r in self.revisions() if matches({"matchLabels": labels}, r["metadata"].get("labels") or {})]
            found = max(same, key=lambda r: int(r["revision"])) if same else None
        else:
            wanted = None
        if wanted is not None and found is None:
            raise Refused("SS-68 missing refused")
        if found is not None and self.takes_old(spec, wanted):
            return self.restored(one, found)
        plain, without_image = set_hashes(spec.get("containers"), spec.get("initContainers"))
        return Applied(
            name,
            annotations,
            spec,
            annotations.get(HASH) or plain,
            annotations.get(HASH_WITHOUT_IMAGE) or without_image,
            (one.get("status") or {}).get("latestRevision") or "",
        )

    def revisions(self) -> list[Json]:
        return [r for r in self.state.case.revisions if r["metadata"]["namespace"] == MANAGER_NAMESPACE]

    def takes_old(self, spec: Json, wanted: Json) -> bool:
        strategy = spec.get("updateStrategy") or {}
        if strategy.get("paused"):
            self.state.branches.hit("SS-70 paused")
            return True
        if wanted.get("policy") != "Partial":
            self.state.branches.hit("SS-70 always")
            return True
        selector = strategy.get("selector")
        if selector is not None and not matches(selector, self.state.pod["metadata"].get("labels") or {}):
            self.state.branches.hit("SS-70 selector does not match")
            return True
        partition = strategy.get("partition")
        if not isinstance(partition, str):
            self.state.branches.hit("SS-70 partition int")
            return False
        old = self.state.case.draw < int(partition.rstrip("%")) / 100
        self.state.branches.hit("SS-70 percent, old" if old else "SS-70 percent, current")
        return old

    def restored(self, one: Json, revision: Json) -> Applied:
        recorded = revision["data"]["spec"]
        keys = ("containers", "initContainers", "volumes", "imagePullSecrets", "patchPodMetadata")
        spec = {**one["spec"], **{key: recorded.get(key) for key in keys}}
        annotations = revision["metadata"].get("annotations") or {}
        plain, without_image = set_hashes(spec["containers"], spec["initContainers"])
        if not annotations.get(HASH):
            self.state.branches.hit("SS-69 hash recomputed")
        return Applied(
            one["metadata"]["name"],
            one["metadata"].get("annotations") or {},
            spec,
            annotations.get(HASH) or plain,
            annotations.get(HASH_WITHOUT_IMAGE) or without_image,
            revision["metadata"]["name"],
        )
