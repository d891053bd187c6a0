"""Cases where the sandbox does not answer as a real server does, by what is missing."""

from typing import Final

GAPS: Final[dict[str, tuple[str, ...]]] = {
    "rules and conditions written in CEL are not checked for types when they are registered": (
        "admitting-bad-condition-syntax",
        "admitting-bad-condition-type",
        "admitting-bad-condition-variable",
        "customs-definition-schema-validation-rule",
    ),
    "configurations of webhooks are checked in part": (
        "admitting-bad-service-without-name",
        "admitting-bad-service-path",
        "admitting-bad-overlapping-resources",
    ),
    "scale-path words of a custom resource whose replicas are no number": (
        "customs-spec-text-for-spec",
        "customs-spec-list-for-spec",
        "customs-spec-big-number",
        "subresources-scale-custom-without-replicas",
        "subresources-scale-custom-negative",
    ),
    "definitions: deprecated versions, taken names, defaults of what is stored, metadata inside objects": (
        "customs-deprecated-version",
        "customs-definition-group-is-immutable",
        "customs-definition-names-taken",
        "customs-defaults-on-reading",
        "customs-pruning",
    ),
    "other words, or another order, of the same refusal": (
        "applying-body-nonsense",
        "applying-body-yaml-duplicate",
        "applying-body-yaml-two",
        "applying-duplicate-key",
        "applying-custom-refused",
        "printing-wrong-deployment-empty",
        "printing-wrong-stateful-set-empty",
        "printing-wrong-daemon-set-empty",
        "printing-wrong-service-port",
        "subresources-scale-text",
        "subresources-status-custom",
        "subresources-status-custom-without-subresource",
        "writing-create-large",
    ),
    "built-in kinds are checked in part": (
        "printing-wrong-autoscaler-empty",
        "printing-wrong-ingress-empty",
        "subresources-status-observed-generation",
        "subresources-status-of-a-namespace",
        "subresources-scale-other-name",
        "subresources-ephemeral-change",
    ),
    "some defaults and empty fields of built-in kinds are not set": (
        "admitting-defaults-before-mutating",
        "applying-pod-status",
        "printing-object-service-headless",
        "printing-object-endpoints",
        "printing-object-claim",
        "printing-object-limit-range",
        "printing-object-new-event",
        "printing-object-cluster-role",
        "printing-object-autoscaler",
        "printing-object-autoscaler-v1",
        "printing-object-node",
        "printing-object-volume",
        "printing-row-endpoints",
        "printing-row-autoscaler-v1",
        "subresources-status-put",
        "subresources-status-container-statuses",
    ),
}

REASONS: Final = {case: reason for reason, cases in GAPS.items() for case in cases}

#: Scripts of kubectl commands that end otherwise on the sandbox.
KUBECTL: Final[dict[str, str]] = {
    "apply-client-then-server-side": "managed fields are kept from the first server-side apply on only",
    "diff": "the same: a conflict of managers is not seen",
    "debug": "exec answers 501",
}
