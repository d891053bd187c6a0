"""Validating admission policies: the wording of rejections and warnings, and the writes that policies ignore."""

from typing import Any

from tests.conformance.cases.admitting import ANSWER, HERE, MADE, REGISTRATION, created, rule
from tests.conformance.steps import CONFIG_MAP, CONFIG_MAPS, Call, Case, config_map, delete, post, quiet

_POLICIES = f"{REGISTRATION}/validatingadmissionpolicies"
_BINDINGS = f"{REGISTRATION}/validatingadmissionpolicybindings"


def policy(
    *validations: dict[str, Any], actions: tuple[str, ...] = ("Deny",), narrowed: Any = None, **more: Any
) -> list[Call]:
    """A policy in effect for ConfigMaps of the case's namespace."""
    probe = {"expression": "request.operation == 'DELETE' || object.metadata.name != 'probe'", "message": "probe"}
    spec = {
        "matchConstraints": {"namespaceSelector": HERE, "resourceRules": [rule()]},
        "validations": [probe, *validations],
        **more,
    }
    binding: dict[str, Any] = {"policyName": "p-{ns}", "validationActions": list(actions)}
    if narrowed is not None:
        binding["matchResources"] = narrowed
    in_effect = post(
        CONFIG_MAPS, config_map("probe"), query={"dryRun": "All"}, until=lambda status, _: status != 201, keep=("code",)
    )
    made = [
        quiet(post(_POLICIES, {"metadata": {"name": "p-{ns}"}, "spec": spec})),
        quiet(post(_BINDINGS, {"metadata": {"name": "b-{ns}"}, "spec": binding})),
    ]
    if "Deny" not in actions:
        # Only a rejection shows that it has taken effect: a later binding rejects what the case does not write.
        probes = {"objectSelector": {"matchLabels": {"probe": "yes"}}}
        denying = {"policyName": "p-{ns}", "validationActions": ["Deny"], "matchResources": probes}
        made.append(quiet(post(_BINDINGS, {"metadata": {"name": "c-{ns}"}, "spec": denying})))
        in_effect = post(
            CONFIG_MAPS,
            config_map("probe", labels={"probe": "yes"}),
            query={"dryRun": "All"},
            until=lambda status, _: status != 201,
            keep=("code",),
        )
    return [*made, in_effect]


_FALSE = {"expression": "object.data.k == 'w'"}

CASES = [
    created("holds", *policy({"expression": "object.data.k == 'v'"})),
    created("denies", *policy({**_FALSE, "message": "k must be w"})),
    created("denies-without-message", *policy(_FALSE)),
    created("denies-with-reason", *policy({**_FALSE, "message": "never", "reason": "Forbidden"})),
    created("message-expression", *policy({**_FALSE, "messageExpression": "'k is ' + object.data.k"})),
    created("first-of-two", *policy({**_FALSE, "message": "first"}, {**_FALSE, "message": "second"})),
    created("fails", *policy({"expression": "object.data.nope == 'w'"})),
    created("fails-ignored", *policy({"expression": "object.data.nope == 'w'"}, failurePolicy="Ignore")),
    created("warns", *policy({**_FALSE, "message": "k should be w"}, actions=("Warn",))),
    created("audits", *policy({**_FALSE, "message": "k should be w"}, actions=("Audit",))),
    created(
        "variables",
        *policy(
            {"expression": "variables.wanted == object.data.k", "messageExpression": "'not ' + variables.wanted"},
            variables=[
                {"name": "letter", "expression": "'w'"},
                {"name": "wanted", "expression": "variables.letter + variables.letter"},
            ],
        ),
    ),
    created(
        "condition", *policy(_FALSE, matchConditions=[{"name": "named", "expression": "object.metadata.name != 'a'"}])
    ),
    created(
        "narrowed",
        *policy(
            _FALSE, narrowed={"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}
        ),
        body=config_map("a", {"k": "v"}, labels={"app": "x"}),
    ),
    created("namespace", *policy({"expression": "namespaceObject.metadata.name == 'x'", "message": "not x"})),
    Case(
        "of-deletions",
        MADE,
        *policy({"expression": "request.operation != 'DELETE'", "message": "it stays"}),
        delete(CONFIG_MAP, keep=ANSWER),
    ),
]
