"""Built-in kinds, and the catalog of all served kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver import strategies
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.rules import crds, others, pods, webhooks, workloads
from app.sandbox.apiserver.rules.defaults import DEFAULTS, TEMPLATES, fill_in
from app.sandbox.apiserver.schemas import Field, kind_field
from app.sandbox.apiserver.strategies import Strategy
from app.sandbox.apiserver.tables.table import TableKind, builtin_table
from app.sandbox.apiserver.typecheck import Checker, Reader

Json: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Json], None]


def _prepare_namespace(obj: Json) -> None:
    obj["status"] = {"phase": "Active"}
    finalizers = obj.setdefault("spec", {}).setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")


def _default_namespace(obj: Json) -> None:
    name = obj["metadata"].get("name")
    if name:
        # A label with the namespace's name, for selectors.
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _keep_namespace_spec(obj: Json, old: Json) -> None:
    obj["spec"] = old.get("spec", {})


def _prepare_daemon_set(obj: Json) -> None:
    obj["metadata"].setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", "1")


def _prepare_job(obj: Json) -> None:
    """Set a Job's selector to the Job's UID."""
    if obj["spec"].get("manualSelector"):
        return
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    obj["spec"].pop("manualSelector", None)
    obj["spec"].setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    obj["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {}).update(labels)
    obj["metadata"].setdefault("labels", {}).update(labels)


#: Rules of each kind in addition to its table of defaults and those of its Pod template.
_SPECIAL: Final[Mapping[str, Strategy]] = {
    "pods": dataclasses.replace(
        pods.STRATEGY,
        part_errors={
            "ephemeralcontainers": pods.ephemeral_errors,
            "resize": lambda pod, old: pods.STRATEGY.errors(pod) or pods.resize_errors(pod, old),
        },
    ),
    "podtemplates": Strategy(errors=workloads.pod_template_errors),
    "nodes": Strategy(keeps_status=True),
    "namespaces": Strategy(
        default=_default_namespace,
        prepare_create=_prepare_namespace,
        prepare_update=_keep_namespace_spec,
        status_errors=others.namespace_status_errors,
        name_rule=strategies.label_rule,
    ),
    "deployments.apps": Strategy(
        default=workloads.default_deployment,
        errors=workloads.deployment_errors,
        status_errors=others.deployment_status_errors,
        update_errors=workloads.selector_stays,
    ),
    "replicasets.apps": Strategy(errors=workloads.workload_errors(), update_errors=workloads.selector_stays),
    "statefulsets.apps": Strategy(
        default=workloads.default_stateful_set,
        errors=workloads.workload_errors(),
        update_errors=workloads.stateful_set_stays,
    ),
    "daemonsets.apps": Strategy(
        default=workloads.default_daemon_set,
        prepare_create=_prepare_daemon_set,
        errors=workloads.workload_errors(selector=False),
        update_errors=workloads.selector_stays,
    ),
    "horizontalpodautoscalers.autoscaling": Strategy(
        default=workloads.default_autoscaler,
        prepare_create=workloads.default_autoscaler,
        errors=others.autoscaler_errors,
    ),
    "ingresses.networking.k8s.io": Strategy(errors=others.ingress_errors),
    "limitranges": Strategy(default=workloads.default_limit_range),
    "replicationcontrollers": Strategy(default=workloads.default_replication_controller),
    "jobs.batch": Strategy(
        default=workloads.default_job,
        prepare_create=_prepare_job,
        errors=others.job_errors,
        update_errors=workloads.job_stays,
    ),
    "cronjobs.batch": Strategy(errors=others.cron_job_errors),
    "endpoints": Strategy(errors=others.endpoints_errors),
    "leases.coordination.k8s.io": Strategy(errors=others.lease_errors),
    "persistentvolumeclaims": Strategy(errors=others.claim_errors),
    "poddisruptionbudgets.policy": Strategy(errors=others.budget_errors),
    "services": Strategy(
        default=others.default_service,
        prepare_create=others.prepare_service,
        prepare_update=others.keep_families,
        warnings=others.service_warnings,
        errors=others.service_errors,
        update_errors=others.service_stays,
        name_rule=others.service_name_errors,
    ),
    "configmaps": Strategy(errors=others.config_map_errors, update_errors=others.frozen_data_stays),
    "secrets": Strategy(
        default=others.default_secret,
        warnings=others.secret_warnings,
        errors=others.secret_errors,
        update_errors=others.secret_stays,
    ),
    "rolebindings.rbac.authorization.k8s.io": Strategy(
        default=workloads.default_role_binding,
        update_errors=workloads.role_reference_stays,
        name_rule=strategies.path_segment_errors,
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": Strategy(
        default=workloads.default_role_binding,
        update_errors=workloads.role_reference_stays,
        name_rule=strategies.path_segment_errors,
    ),
    "roles.rbac.authorization.k8s.io": Strategy(errors=others.role_errors, name_rule=strategies.path_segment_errors),
    "clusterroles.rbac.authorization.k8s.io": Strategy(
        errors=others.role_errors, name_rule=strategies.path_segment_errors
    ),
    "priorityclasses.scheduling.k8s.io": Strategy(
        errors=others.priority_errors, update_errors=workloads.priority_stays
    ),
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        default=workloads.default_crd, prepare_create=crds.prepare, errors=crds.errors, update_errors=crds.update_errors
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": Strategy(errors=webhooks.errors),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": Strategy(errors=webhooks.errors),
}
_PLAIN: Final = Strategy()


@cache
def strategy_of(qualified: str) -> Strategy:
    """Return the write strategy of a built-in resource."""
    special = _SPECIAL.get(qualified, _PLAIN)
    steps: list[Change] = []
    if qualified in DEFAULTS:
        steps.append(lambda obj: fill_in(qualified, obj))
    if qualified in TEMPLATES:
        steps.append(workloads.with_template(TEMPLATES[qualified], special.default))
    else:
        steps.append(special.default)
    if len(steps) == 1 and qualified not in TEMPLATES:
        return special
    status = qualified in DEFAULTS and any(place.startswith("status") for place, _ in DEFAULTS[qualified])
    prepare = _with_status(qualified, special.prepare_create) if status else special.prepare_create
    return dataclasses.replace(special, default=_sequence(steps), prepare_create=prepare)


def _sequence(steps: list[Change]) -> Change:
    def run(obj: Json) -> None:
        for step in steps:
            step(obj)

    return run


def _with_status(qualified: str, prepare: Change) -> Change:
    """Return a function that runs ``prepare``, which resets the status, and then fills in the defaults of the
    status."""

    def run(obj: Json) -> None:
        prepare(obj)
        fill_in(qualified, obj)

    return run


# Strategies, type checkers and table columns by kind. They are built on first use; those of custom resources come from
# the CRD.

_checkers: dict[tuple[str, str], Checker | None] = {}


class Catalog:
    """Looks up the strategy, types and table columns of a resource."""

    def strategy(self, resource: ResourceType) -> Strategy:
        """Return the write strategy of the resource."""
        if resource.custom is not None:
            return resource.custom.strategy
        return strategy_of(resource.qualified)

    def schema(self, resource: ResourceType) -> Field | None:
        """Return the type of its objects."""
        if resource.custom is not None:
            return resource.custom.field
        return kind_field(resource.api_version, resource.kind)

    def checker(self, resource: ResourceType) -> Reader | None:
        """Return the type checker for its objects."""
        if resource.custom is not None:
            return resource.custom.reader
        return self.checker_of(resource.api_version, resource.kind)

    def checker_of(self, api_version: str, kind: str) -> Checker | None:
        """Return the type checker for a kind by name. Bodies of subresources have kinds of their own."""
        key = (api_version, kind)
        if key not in _checkers:
            found = kind_field(api_version, kind)
            _checkers[key] = Checker(found) if found is not None else None
        return _checkers[key]

    def table(self, resource: ResourceType) -> TableKind:
        """Return the columns of ``kubectl get``."""
        if resource.custom is not None:
            return resource.custom.table
        return builtin_table(resource.api_version, resource.plural)
