from typing import Any

import pytest

from app.features.sidecarset.injection.resources import (
    ResourcesPolicyError,
    compile_policy,
    evaluate,
    policy_errors,
    targets,
)
from app.kube.fielderrors import Path

AT = Path("spec").child("containers").index(0).child("resourcesPolicy")


def policy(mode: str = "sum", regex: str | None = ".*", **expressions: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"targetContainersMode": mode, "resourcesExpr": expressions}
    return result if regex is None else {**result, "targetContainersNameRegex": regex}


def result(source: dict[str, Any], **limits: str) -> dict[str, dict[str, str]]:
    """Return the resources that a policy computes for a Pod whose container has these limits."""
    compiled = compile_policy(source)
    return evaluate(compiled, targets(compiled, [], [{"name": "a", "resources": {"limits": limits}}], ()))


HALF_OR_50M = {"cpu": "max(cpu*50%, 50m)"}


@pytest.mark.behaviour("SS-61")
@pytest.mark.parametrize(("regex", "injected"), [("^x", ()), (".*", ("main",))])
def test_a_pod_without_a_target_is_refused(regex: str, injected: tuple[str, ...]) -> None:
    compiled = compile_policy(policy(regex=regex, limits={}))
    with pytest.raises(ResourcesPolicyError) as caught:
        targets(compiled, [], [{"name": "main"}], injected)
    assert str(caught.value) == f'no containers match the regex pattern "{regex}"'


def test_an_unreadable_quantity_in_the_pod_is_refused_with_its_field() -> None:
    with pytest.raises(ResourcesPolicyError, match=r"resources\.limits\.cpu of a container of the Pod: "):
        result(policy(limits={"cpu": "cpu"}), cpu="lots")


@pytest.mark.behaviour("SS-23", "SS-67")
@pytest.mark.parametrize(
    ("source", "field", "message"),
    [
        (policy("min", limits={}), "targetContainersMode", 'Unsupported value: "min": supported values: "sum", "max"'),
        ({"resourcesExpr": {"limits": {}}}, "targetContainersMode", 'Unsupported value: ""'),
        (policy(regex="(", limits={}), "targetContainersNameRegex", 'Invalid value: "(": invalid regex: error parsing'),
        (policy(regex="a(?=b)", limits={}), "targetContainersNameRegex", "invalid regex"),
        (policy(), "resourcesExpr", "Required value: at least one of limits and requests"),
        (policy(limits=None, requests=None), "resourcesExpr", "Required value: at least one of limits and requests"),
        (
            policy(limits={"cpu": "foo("}),
            "resourcesExpr.limits.cpu",
            'Invalid value: "foo(": invalid expression: column 1',
        ),
        (policy(limits={"cpu": "memory"}), "resourcesExpr.limits.cpu", 'unknown name "memory"'),
        (policy(requests={"memory": "100mb"}), "resourcesExpr.requests.memory", 'unknown suffix in "100mb"'),
        (policy(limits={"cpu": "cpu-2"}), "resourcesExpr.limits.cpu", "write max(cpu-2, 0)"),
        (policy(limits={"memory": "memory-100Mi"}), "resourcesExpr.limits.memory", "with memory=1: "),
        (policy(limits={"cpu": "cpu*cpu"}), "resourcesExpr.limits.cpu", "multiplied by a quantity"),
        (policy(limits={"memory": "100 - memory"}), "resourcesExpr.limits.memory", "negative"),
        ({"targetContainersMode": "sum"}, "resourcesExpr", "Required value"),
    ],
)
def test_an_invalid_policy_is_refused_by_field(source: dict[str, Any], field: str, message: str) -> None:
    errors = list(policy_errors(source, AT))
    assert [error.field for error in errors] == [f"spec.containers[0].resourcesPolicy.{field}"]
    assert message in str(errors[0])


@pytest.mark.behaviour("SS-23", "SS-67")
@pytest.mark.parametrize(
    "source",
    [
        policy(limits=HALF_OR_50M, requests=HALF_OR_50M),
        policy(regex=None, limits={"memory": "memory/3"}),
        policy(limits={}, requests={}),
        policy(limits={"cpu": ""}),
        # Negative for small containers only: admitted by OpenKruise as well.
        policy(limits={"cpu": "cpu - 500m"}),
        policy(limits={"cpu": "2 - cpu"}),
    ],
)
def test_a_valid_policy_is_accepted(source: dict[str, Any]) -> None:
    assert list(policy_errors(source, AT)) == []
    compile_policy(source)


@pytest.mark.behaviour("SS-67")
def test_compiling_does_not_repeat_validation() -> None:
    """A set stored before the check existed still injects wherever its expression has a value."""
    assert result(policy(limits={"cpu": "cpu-2"}), cpu="3") == {"limits": {"cpu": "1"}}
