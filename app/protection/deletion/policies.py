"""Deletion protection by the API server itself: ValidatingAdmissionPolicies made from the table of kinds. Pure.

Opt-in (D-19): they hold while no replica of the manager runs. They know the cases that the object alone decides, which
are ``Always`` for every kind and ``Cascading`` for kinds with replicas. What they refuse never reaches the webhooks, so
it shows in the API server's audit log instead of our metrics and protection log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.api import names
from app.protection.deletion.admission import LABELLED
from app.protection.deletion.plan import Protection, refusal_text
from app.protection.deletion.table import Cascading, ProtectedKind

API_VERSION: Final = "admissionregistration.k8s.io/v1"
ALWAYS_NAME: Final = "deletion-protection-always.kruise.io"
REPLICAS_NAME: Final = "deletion-protection-cascading-replicas.kruise.io"


def admission_policies(table: Iterable[ProtectedKind]) -> list[dict[str, Any]]:
    """Policies and their bindings, to be applied with kubectl."""
    kinds = tuple(table)
    with_replicas = [kind for kind in kinds if kind.cascading is Cascading.REPLICAS]
    always = {"expression": "false", "message": refusal_text(Protection.ALWAYS), "reason": "Forbidden"}
    replicas = {
        "expression": "!has(oldObject.spec.replicas) || oldObject.spec.replicas <= 0",
        "messageExpression": f"'{refusal_text(Protection.CASCADING)} and replicas ' + "
        "string(oldObject.spec.replicas) + '>0'",
        "reason": "Forbidden",
    }
    return [
        *_policy(ALWAYS_NAME, Protection.ALWAYS, kinds, always),
        *(_policy(REPLICAS_NAME, Protection.CASCADING, with_replicas, replicas) if with_replicas else ()),
    ]


def _policy(
    name: str, value: Protection, kinds: Iterable[ProtectedKind], validation: Mapping[str, Any]
) -> Iterable[dict[str, Any]]:
    label = f"oldObject.metadata.labels['{names.DELETE_PROTECTION}']"
    yield {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "objectSelector": LABELLED,
                "resourceRules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": list(kind.versions),
                        "operations": ["DELETE"],
                        "resources": [kind.resource],
                    }
                    for kind in kinds
                ],
            },
            "matchConditions": [
                # DP-4: a second deletion of a terminating object is harmless.
                {"name": "not-terminating", "expression": "!has(oldObject.metadata.deletionTimestamp)"},
                {"name": "protected", "expression": f"{label} == '{value}'"},
            ],
            "validations": [dict(validation)],
        },
    }
    yield {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        # Audit: the refusal stands in the audit log with the policy's name.
        "spec": {"policyName": name, "validationActions": ["Deny", "Audit"]},
    }
