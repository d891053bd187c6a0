"""Admission plugins, and ValidatingAdmissionPolicies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.kube.jsonvalues import json_copy
from app.kube.selectors import compile_selector
from app.sandbox.apiserver import status
from app.sandbox.apiserver.cel import CelError, compiled
from app.sandbox.apiserver.hooks import Hook, conditions_hold, matching
from app.sandbox.apiserver.status import Refusal
from app.sandbox.apiserver.steps import Attributes
from app.sandbox.apiserver.storage import Core

Json: TypeAlias = dict[str, Any]

_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_EVICTION_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_SECONDS: Final = 300
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105  # a name, no secret
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105
_TOKEN_SOURCES: Final = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
        }
    },
]
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Plugins:
    """The mutating and validating plugins, in a real server's order."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def mutate(self, attributes: Attributes) -> None:
        """Run the mutating plugins on a write. Changes ``attributes.obj`` in place."""
        resource = attributes.resource
        self._namespace_lifecycle(attributes)
        if resource.qualified == "pods" and attributes.operation == "CREATE" and not attributes.subresource:
            pod = attributes.obj or {}
            self._service_account(attributes, pod)
            self._priority(attributes, pod)
            _tolerate_evictions(pod)

        elif resource.qualified == "services" and not attributes.subresource:
            self._address(attributes)

    def _address(self, attributes: Attributes) -> None:
        """Allocate a cluster IP for a Service, unless it is headless or external."""
        spec = (attributes.obj or {}).get("spec") or {}
        before = (attributes.old or {}).get("spec") or {}
        if spec.get("type") == "ExternalName":
            return
        if attributes.old is not None:
            for name in ("clusterIP", "clusterIPs"):
                if not spec.get(name) and name in before:
                    spec[name] = before[name]
        if not spec.get("clusterIP"):
            taken = {
                (entry.obj.get("spec") or {}).get("clusterIP") for entry in self._core.named("services").select("")
            }
            free = (f"10.96.{number // 256}.{number % 256}" for number in range(1, 2**16))
            spec["clusterIP"] = next(address for address in free if address not in taken)
        spec["clusterIPs"] = [spec["clusterIP"]]

    def _namespace_lifecycle(self, attributes: Attributes) -> None:
        """Reject creations in a namespace that is missing or terminating."""
        resource = attributes.resource
        if resource.qualified == "namespaces":
            if attributes.operation == "DELETE" and attributes.name in _IMMORTAL:
                raise status.forbidden(resource, attributes.name, "this namespace may not be deleted")
            return
        if attributes.operation != "CREATE" or not attributes.namespace:
            return
        namespaces = self._core.named("namespaces")
        entry = namespaces.objects.get(attributes.namespace)
        if entry is None:
            message = f'namespaces "{attributes.namespace}" not found'
            raise status.Refusal(404, "NotFound", message, {"name": attributes.namespace, "kind": "namespaces"})
        if entry.obj["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {attributes.namespace} because it is being terminated"
            refusal = status.forbidden(resource, attributes.name, message)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {attributes.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            refusal.details["causes"] = [cause]
            raise refusal

    def _service_account(self, attributes: Attributes, pod: Json) -> None:
        """Set a Pod's ServiceAccount, and mount its token unless the Pod or the account opts out. Rejects the Pod if
        the account does not exist.

        ``default`` may be missing, because the controller that creates it may not be running.
        """
        spec = pod.setdefault("spec", {})
        if "kubernetes.io/config.mirror" in (pod.get("metadata", {}).get("annotations") or {}):
            return
        name = spec.get("serviceAccountName") or "default"
        account = self._core.named("serviceaccounts").objects.get(f"{attributes.namespace}/{name}")
        if account is None and name != "default":
            message = (
                f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found'
            )
            raise status.forbidden(attributes.resource, attributes.name, message)
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        automount = spec.get("automountServiceAccountToken")
        if automount is None and account is not None:
            automount = account.obj.get("automountServiceAccountToken")
        if automount is not False and account is not None:
            self._mount_token(spec)

    def _mount_token(self, spec: Json) -> None:
        volumes = spec.setdefault("volumes", [])
        name = next((one["name"] for one in volumes if one["name"].startswith(_TOKEN_VOLUME)), "")
        if not name:
            name = self._core.generated_name(_TOKEN_VOLUME)
            volumes.append({"name": name, "projected": {"sources": json_copy(_TOKEN_SOURCES), "defaultMode": 0o644}})
        for part in ("initContainers", "containers"):
            for container in spec.get(part) or ():
                mounts = container.setdefault("volumeMounts", [])
                if not any(mount.get("mountPath") == _TOKEN_PATH for mount in mounts):
                    mounts.append({"name": name, "readOnly": True, "mountPath": _TOKEN_PATH})

    def _priority(self, attributes: Attributes, pod: Json) -> None:
        spec = pod.setdefault("spec", {})
        name = spec.get("priorityClassName") or ""
        value, policy = 0, "PreemptLowerPriority"
        if name in _SYSTEM_PRIORITIES:
            value = _SYSTEM_PRIORITIES[name]
        elif name:
            entry = self._core.named("priorityclasses.scheduling.k8s.io").objects.get(name)
            if entry is None:
                message = f"no PriorityClass with name {name} was found"
                raise status.forbidden(attributes.resource, attributes.name, message)
            value, policy = entry.obj.get("value", 0), entry.obj.get("preemptionPolicy") or policy
        else:
            for entry in self._core.named("priorityclasses.scheduling.k8s.io").objects.values():
                if entry.obj.get("globalDefault"):
                    spec["priorityClassName"] = entry.key
                    value, policy = entry.obj.get("value", 0), entry.obj.get("preemptionPolicy") or policy
        given = spec.get("priority")
        if given is not None and given != value:
            message = (
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {value} from the given PriorityClass name"
            )
            raise status.forbidden(attributes.resource, attributes.name, message)
        spec["priority"] = value
        spec.setdefault("preemptionPolicy", policy)


def _tolerate_evictions(pod: Json) -> None:
    """Make the Pod tolerate an unready or unreachable node for five minutes, unless it has tolerations for that."""
    tolerations = pod["spec"].get("tolerations") or []
    for taint in _EVICTION_TAINTS:
        known = any(
            (not one.get("key") or one.get("key") == taint) and one.get("effect", "") in ("", "NoExecute")
            for one in tolerations
        )
        if not known:
            tolerations = [
                *tolerations,
                {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTION_SECONDS},
            ]
    pod["spec"]["tolerations"] = tolerations


# ValidatingAdmissionPolicies: CEL rules that validate writes without a webhook.
#
# Source: Kubernetes 1.34, apiserver/pkg/admission/plugin/policy/validating. Policies with parameters are not
# evaluated.

POLICIES: Final = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS: Final = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
_ANYTHING: Final = ({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*", "*/*"]},)
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}


@dataclass(frozen=True, slots=True)
class BoundPolicy:
    """A policy with one of its bindings. ``excluded`` and ``narrowed`` limit the writes that it applies to."""

    policy: str
    binding: str
    spec: Mapping[str, Any]
    actions: tuple[str, ...]
    wanted: Hook
    excluded: Hook
    narrowed: Hook
    narrowed_excluded: Hook


def bound_policies(core: Core) -> tuple[BoundPolicy, ...]:
    """Return all policies in effect, sorted by the names of policy and binding."""
    found = []
    policies = core.named(POLICIES).objects
    for entry in core.named(BINDINGS).select(""):
        binding = entry.obj.get("spec") or {}
        policy = policies.get(binding.get("policyName") or "")
        if policy is None or (spec := policy.obj.get("spec") or {}).get("paramKind"):
            continue
        constraints, narrowed = spec.get("matchConstraints") or {}, binding.get("matchResources") or {}
        found.append(
            BoundPolicy(
                policy=policy.key,
                binding=entry.key,
                spec=spec,
                actions=tuple(binding.get("validationActions") or ()),
                wanted=_matcher(spec, constraints, constraints.get("resourceRules") or ()),
                excluded=_matcher(spec, constraints, constraints.get("excludeResourceRules") or ()),
                narrowed=_matcher(spec, narrowed, narrowed.get("resourceRules") or _ANYTHING),
                narrowed_excluded=_matcher(spec, narrowed, narrowed.get("excludeResourceRules") or ()),
            )
        )
    return tuple(sorted(found, key=lambda one: (one.policy, one.binding)))


def _matcher(spec: Mapping[str, Any], match: Mapping[str, Any], rules: Any) -> Hook:
    raw = {
        "rules": rules,
        "matchPolicy": match.get("matchPolicy", "Equivalent"),
        "matchConditions": spec.get("matchConditions") or (),
        "failurePolicy": spec.get("failurePolicy", "Fail"),
    }
    namespaces, objects = match.get("namespaceSelector"), match.get("objectSelector")
    return Hook("", "", raw, compile_selector(namespaces), compile_selector(objects))


def concerned(core: Core, bound: BoundPolicy, attributes: Attributes) -> bool:
    """Return whether the policy applies to a write. Match conditions are evaluated later."""
    resource = attributes.resource
    if resource.qualified in (POLICIES, BINDINGS):
        return False  # otherwise a broken policy could not be repaired
    return (
        matching(core, bound.wanted, attributes) is not None
        and matching(core, bound.narrowed, attributes) is not None
        and matching(core, bound.excluded, attributes) is None
        and matching(core, bound.narrowed_excluded, attributes) is None
    )


def judge(core: Core, bound: BoundPolicy, attributes: Attributes, request: Json) -> None:
    """Evaluate the policy's validations. A failed one rejects the write or adds a warning, depending on the binding."""
    namespace = core.named("namespaces").objects.get(attributes.namespace)
    variables: Json = {
        "object": attributes.obj,
        "oldObject": attributes.old,
        "request": request,
        "params": None,
        "namespaceObject": namespace.obj if namespace is not None else None,
        "variables": {},
    }
    for message, reason in _faults(bound, variables):
        named = f"ValidatingAdmissionPolicy '{bound.policy}' with binding '{bound.binding}'"
        if "Warn" in bound.actions:
            attributes.warnings.append(f"Validation failed for {named}: {message}")
        if "Deny" in bound.actions:
            raise _denied(attributes, f"{named} denied request: {message}", reason)


def _faults(bound: BoundPolicy, variables: Json) -> Iterator[tuple[str, str]]:
    """Yield message and reason of each failed validation."""
    ignored = bound.spec.get("failurePolicy") == "Ignore"
    try:
        if not conditions_hold(bound.wanted, variables):
            return
    except CelError as error:
        yield str(error), ""
        return
    for variable in bound.spec.get("variables") or ():
        try:
            variables["variables"][variable["name"]] = compiled(variable["expression"]).evaluate(variables)
        except CelError:
            continue  # only expressions that use the variable fail
    for validation in bound.spec.get("validations") or ():
        source = validation["expression"]
        try:
            holds = compiled(source).evaluate(variables) is True
        except CelError as error:
            if not ignored:
                yield str(error), ""
            continue
        if not holds:
            yield _message(validation, variables) or f"failed expression: {source}", validation.get("reason") or ""


def _message(validation: Mapping[str, Any], variables: Json) -> str:
    given = str(validation.get("message") or "").strip()
    if source := validation.get("messageExpression"):
        try:
            found = compiled(source).evaluate(variables)
        except CelError:
            return given
        if isinstance(found, str) and found.strip() and "\n" not in found:
            return found
    return given


def _denied(attributes: Attributes, message: str, reason: str) -> Refusal:
    found = status.forbidden(attributes.resource, attributes.name, message)
    found.reason = reason or "Invalid"
    found.code = _CODES.get(found.reason, 422)
    found.details = {**found.details, "causes": [{"message": message}]}
    return found
