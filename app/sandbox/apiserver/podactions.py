"""Actions on Pods: bind, evict, add ephemeral containers, and resize."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from app.kube.fielderrors import forbidden, not_supported, quote, required
from app.kube.selectors import compile_selector
from app.sandbox.apiserver import status
from app.sandbox.apiserver.deleting import DeleteOptions, Deleter
from app.sandbox.apiserver.requests import Call
from app.sandbox.apiserver.steps import Attributes, Kinds, fresh
from app.sandbox.apiserver.storage import Core, Entry
from app.sandbox.apiserver.writing import Writer

Json: TypeAlias = dict[str, Any]

_BUDGETS: Final = "poddisruptionbudgets.policy"
_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class PodActions:
    """Carries out the actions on Pods that have endpoints of their own."""

    def __init__(self, core: Core, kinds: Kinds, writer: Writer, deleter: Deleter) -> None:
        self._core = core
        self._kinds = kinds
        self._writer = writer
        self._deleter = deleter

    # ---- binding

    async def bind(self, call: Call, binding: Json) -> Json:
        """Assign a Pod to a node."""
        metadata = binding.get("metadata") or {}
        name = call.name or metadata.get("name") or ""
        if metadata.get("name") not in (None, "", name):
            raise status.bad_request("name in URL does not match name in Binding object")
        target = (binding.get("target") or {}).get("name") or ""
        if not target:
            raise status.plain_error(str(required("target.name")))
        kind = (binding.get("target") or {}).get("kind") or ""
        if kind not in ("", "Node"):
            raise status.plain_error(str(not_supported("target.kind", kind, ("Node", "<empty>"))))
        await self._admit(call, name, binding)
        pods = self._core.named("pods")
        entry = pods.objects.get(f"{call.namespace}/{name}")
        resource = self._core.registry.find("", "v1", "pods")
        if resource is None or entry is None:
            message = f'pods "{name}" not found'
            raise status.Refusal(404, "NotFound", message, {"name": name, "kind": "pods"})
        uid = metadata.get("uid") or ""
        if uid and uid != entry.obj["metadata"]["uid"]:
            raise status.uid_conflict(resource, entry.key, uid, entry.obj["metadata"]["uid"])
        if problem := _unbindable(entry.obj, name):
            message = f'Operation cannot be fulfilled on pods/binding "{name}": {problem}'
            raise status.Refusal(409, "Conflict", message, {"name": name, "kind": "pods/binding"})
        if not call.dry_run:
            self._core.storage.update(pods, entry, self._bound(entry.obj, target, metadata))
        return dict(_SUCCESS)

    def _bound(self, pod: Json, node: str, binding: Json) -> Json:
        found: Json = fresh(pod)
        found["spec"]["nodeName"] = node
        for part in ("labels", "annotations"):
            if given := binding.get(part):
                found["metadata"].setdefault(part, {}).update(given)
        if found["metadata"].get("generation"):
            found["metadata"]["generation"] += 1
        found.setdefault("status", {}).pop("nominatedNodeName", None)
        _set_condition(found, {"type": "PodScheduled", "status": "True"}, self._core.now())
        return found

    # ---- eviction

    async def evict(self, call: Call, eviction: Json) -> Json:
        """Delete a Pod if its disruption budgets allow it."""
        name = (eviction.get("metadata") or {}).get("name") or ""
        if name != call.name:
            raise status.bad_request("name in URL does not match name in Eviction object")
        await self._admit(call, call.name, eviction)
        pod_call = Call(call.method, call.path, {}, call.headers, b"", call.user, call.namespace, call.name)
        pod_call.resource, pod_call.verb = call.resource, "delete"
        options = DeleteOptions.read(pod_call, eviction.get("deleteOptions"))
        if call.dry_run and not options.dry_run:
            options = DeleteOptions(options.grace, options.policy, options.orphan, options.uid, dry_run=True)
        entry = self._core.entry(call)
        pod = entry.obj
        phase = (pod.get("status") or {}).get("phase")
        ignored = phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))
        if not ignored:
            self._take_from_budget(entry, dry_run=options.dry_run)
        if not options.dry_run:
            entry = self._mark(entry)
        deleter = Deleter(self._core, self._kinds, _AdmittedAlready())
        await deleter.delete(pod_call, options)
        return dict(_SUCCESS)

    def _mark(self, entry: Entry) -> Entry:
        pod: Json = fresh(entry.obj)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        _set_condition(pod, condition, self._core.now())
        return self._core.storage.update(self._core.named("pods"), entry, pod)

    def _take_from_budget(self, entry: Entry, *, dry_run: bool) -> None:
        pod = entry.obj
        namespace = pod["metadata"]["namespace"]
        budgets = [
            budget
            for budget in self._core.named(_BUDGETS).select(namespace)
            if _selects(budget.obj, pod["metadata"].get("labels") or {})
        ]
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise status.plain_error(message)
        if not budgets:
            return
        budget = budgets[0]
        found = budget.obj.get("status") or {}
        if not _ready(pod):
            policy = (budget.obj.get("spec") or {}).get("unhealthyPodEvictionPolicy")
            healthy, desired = found.get("currentHealthy", 0), found.get("desiredHealthy", 0)
            if policy == "AlwaysAllow" or (healthy >= desired > 0):
                return
        self._decrement(budget, pod["metadata"]["name"], dry_run=dry_run)

    def _decrement(self, budget: Entry, pod_name: str, *, dry_run: bool) -> None:
        obj, name = budget.obj, budget.obj["metadata"]["name"]
        found = dict(obj.get("status") or {})
        if found.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
            raise _budget_refusal(f"The disruption budget {name} is still being processed by the server.", 10)
        allowed = found.get("disruptionsAllowed", 0)
        if allowed <= 0:
            needs, has = found.get("desiredHealthy", 0), found.get("currentHealthy", 0)
            message = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
            raise _budget_refusal(message, 0)
        if dry_run:
            return
        found["disruptionsAllowed"] = allowed - 1
        found["disruptedPods"] = {**found.get("disruptedPods", {}), pod_name: self._core.now()}
        self._core.storage.update(self._core.named(_BUDGETS), budget, {**obj, "status": found})

    async def _admit(self, call: Call, name: str, obj: Json) -> None:
        await self._writer.admit(call, name, obj)


class _AdmittedAlready:
    """Admission that allows everything, for deletions that were already admitted as evictions."""

    async def mutate(self, _attributes: Attributes) -> None: ...

    async def validate(self, _attributes: Attributes) -> None: ...


def _unbindable(pod: Json, name: str) -> str:
    """Return why a Pod cannot be bound, or "" if it can."""
    spec = pod.get("spec") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _set_condition(pod: Json, condition: Json, now: str) -> None:
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    for index, present in enumerate(conditions):
        if present.get("type") == condition["type"]:
            changed = present.get("status") != condition["status"]
            time = now if changed else present.get("lastTransitionTime", now)
            conditions[index] = {**present, **condition, "lastTransitionTime": time}
            return
    conditions.append({**condition, "lastProbeTime": None, "lastTransitionTime": now})


def _ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _selects(budget: Json, labels: dict[str, str]) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and compile_selector(selector).matches(labels)


def _budget_refusal(cause: str, retry_after: int) -> status.Refusal:
    details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return status.too_many_requests(message, retry_after, details)


def only_ephemeral(wanted: Json, old: Json) -> Json:
    """Return the old Pod with the requested ephemeral containers, in the requested order."""
    found: Json = fresh(old)
    given = (wanted.get("spec") or {}).get("ephemeralContainers") or []
    kept = {one.get("name") for one in given}
    missing = [one["name"] for one in found["spec"].get("ephemeralContainers") or [] if one["name"] not in kept]
    if missing:
        at = "spec.ephemeralContainers"
        message = f"existing ephemeral containers {quote(missing[0])} may not be removed\n"
        raise status.invalid_kind("", "Pod", old["metadata"]["name"], [forbidden(at, message)])
    if given:
        found["spec"]["ephemeralContainers"] = given
    _take_version(found, wanted)
    return found


def only_resources(wanted: Json, old: Json) -> Json:
    """Return the old Pod with the requested container resources and resize policies."""
    found: Json = fresh(old)
    for name in ("containers", "initContainers"):
        given = {one.get("name"): one for one in (wanted.get("spec") or {}).get(name) or ()}
        for container in found["spec"].get(name) or ():
            match = given.get(container["name"])
            for part in ("resources", "resizePolicy"):
                if match is not None and part in match:
                    container[part] = match[part]
    _take_version(found, wanted)
    return found


def _take_version(found: Json, wanted: Json) -> None:
    found["metadata"]["resourceVersion"] = (wanted.get("metadata") or {}).get("resourceVersion") or ""
