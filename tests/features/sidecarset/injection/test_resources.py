from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.sidecarset.injection.resources import (
    ResourcesPolicyError,
    compile_policy,
    evaluate,
    policy_errors,
    targets,
)
from app.kube.fielderrors import Path
from app.kube.quantities import parse

AT = Path("spec").child("containers").index(0).child("resourcesPolicy")


def policy(mode: str = "sum", regex: str | None = ".*", **expressions: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"targetContainersMode": mode, "resourcesExpr": expressions}
    return result if regex is None else {**result, "targetContainersNameRegex": regex}


def container(
    name: str, limits: dict[str, str] | None = None, requests: dict[str, str] | None = None
) -> dict[str, Any]:
    given = {"limits": limits, "requests": requests}
    return {"name": name, "resources": {kind: amounts for kind, amounts in given.items() if amounts is not None}}


def result(source: dict[str, Any], *containers: dict[str, Any]) -> dict[str, dict[str, str]]:
    compiled = compile_policy(source)
    return evaluate(compiled, targets(compiled, [], containers, ()))


TWO = (container("a", {"cpu": "200m"}, {"cpu": "50m"}), container("b", {"cpu": "400m"}, {"cpu": "100m"}))
HALF_OR_50M = {"limits": {"cpu": "max(cpu*50%, 50m)"}, "requests": {"cpu": "max(cpu*50%, 50m)"}}


@pytest.mark.behaviour("SS-60", "SS-61", "SS-62", "SS-63")
@pytest.mark.parametrize(
    ("source", "containers", "expected"),
    [
        pytest.param(
            policy(limits={"cpu": "cpu*50%"}, requests={"cpu": "cpu*50%"}),
            TWO,
            {"limits": {"cpu": "300m"}, "requests": {"cpu": "75m"}},
            id="sum",
        ),
        pytest.param(
            policy("max", **HALF_OR_50M), TWO, {"limits": {"cpu": "200m"}, "requests": {"cpu": "50m"}}, id="largest"
        ),
        pytest.param(
            policy("sum", "^a$", **HALF_OR_50M),
            TWO,
            {"limits": {"cpu": "100m"}, "requests": {"cpu": "50m"}},
            id="those the pattern matches",
        ),
        pytest.param(
            policy("max", limits={"cpu": "max(cpu*50%,50m)", "memory": "200Mi"}),
            (container("a", {"cpu": "200m", "memory": "1Gi"}), container("b", {"memory": "1Gi"})),
            {"limits": {"memory": "200Mi"}},
            id="a limit one target lacks sets none",
        ),
        pytest.param(
            policy(limits={"memory": "200Mi"}), (container("a"),), {}, id="not even a constant where one is unlimited"
        ),
        pytest.param(
            policy(requests={"cpu": "cpu*50%"}),
            (container("a"), {"name": "b"}),
            {"requests": {"cpu": "0"}},
            id="a request nobody has counts as 0",
        ),
        pytest.param(
            policy(requests={"cpu": "cpu + 10m"}),
            (container("a", None, {"cpu": "100m"}), container("b")),
            {"requests": {"cpu": "110m"}},
            id="a missing request counts as 0 in a sum",
        ),
        pytest.param(
            policy(limits={"memory": "max(memory*20% + 100Mi, 200Mi)"}),
            (container("a", {"memory": "800Mi"}),),
            {"limits": {"memory": "260Mi"}},
            id="memory",
        ),
        pytest.param(
            policy(limits={"cpu": "cpu*50%"}),
            (container("main", {"cpu": "1"}),),
            {"limits": {"cpu": "500m"}},
            id="EX-21",
        ),
        pytest.param(policy(limits={"cpu": ""}, requests={}), TWO, {}, id="an empty expression sets nothing"),
        pytest.param(
            policy("max", limits={"cpu": "cpu"}),
            (container("a", {"cpu": "0"}), container("b", {"cpu": "0"})),
            {"limits": {"cpu": "0"}},
            id="a limit of 0 is a limit",
        ),
    ],
)
def test_resources_follow_the_targets(
    source: dict[str, Any], containers: tuple[dict[str, Any], ...], expected: dict[str, Any]
) -> None:
    assert result(source, *containers) == expected


@pytest.mark.behaviour("SS-66", "SS-67")
@pytest.mark.parametrize(
    ("expression", "limit", "expected"),
    [("memory/3", "100Mi", "34952534"), ("1.5", "1Gi", "2"), ("memory*33%", "100M", "33M"), ("memory/3", "3Ki", "1Ki")],
)
def test_memory_is_rounded_up_to_whole_bytes(expression: str, limit: str, expected: str) -> None:
    source = policy(limits={"memory": expression})
    assert result(source, container("a", {"memory": limit})) == {"limits": {"memory": expected}}


@pytest.mark.behaviour("SS-67")
def test_a_limit_below_its_request_is_raised() -> None:
    source = policy(limits={"cpu": "cpu*10%", "memory": "1Gi"}, requests={"cpu": "cpu", "memory": "memory"})
    target = container("a", {"cpu": "1", "memory": "1Gi"}, {"cpu": "500m", "memory": "512Mi"})
    assert result(source, target) == {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "512Mi"},
    }


@pytest.mark.behaviour("SS-61")
def test_targets_are_native_sidecars_and_then_containers_outside_all_sets() -> None:
    compiled = compile_policy(policy(limits={}))
    inits = [
        {"name": "prep"},
        {"name": "proxy", "restartPolicy": "Always"},
        {"name": "mesh", "restartPolicy": "Always"},
    ]
    containers = [{"name": "main"}, {"name": "shipper"}]
    found = targets(compiled, inits, containers, {"shipper", "mesh"})
    assert [target["name"] for target in found] == ["proxy", "main"]


@pytest.mark.behaviour("SS-61", "SS-122")
def test_the_pattern_matches_anywhere_in_the_name() -> None:
    compiled = compile_policy(policy(regex="ai", limits={}))
    assert targets(compiled, [], [{"name": "main"}, {"name": "log"}], ()) == [{"name": "main"}]


@pytest.mark.behaviour("SS-61")
@pytest.mark.parametrize(("regex", "injected"), [("^x", ()), (".*", ("main",))])
def test_a_pod_without_a_target_is_refused(regex: str, injected: tuple[str, ...]) -> None:
    compiled = compile_policy(policy(regex=regex, limits={}))
    with pytest.raises(ResourcesPolicyError) as caught:
        targets(compiled, [], [{"name": "main"}], injected)
    assert str(caught.value) == f'no containers match the regex pattern "{regex}"'


@pytest.mark.behaviour("SS-23")
@pytest.mark.parametrize("regex", [None, ""])
def test_a_missing_pattern_means_every_container(regex: str | None) -> None:
    assert result(policy(regex=regex, requests={"cpu": "1"}), container("a")) == {"requests": {"cpu": "1"}}


@pytest.mark.behaviour("SS-65")
def test_an_invalid_result_is_reported_with_field_value_and_reason() -> None:
    with pytest.raises(ResourcesPolicyError) as caught:
        result(policy(limits={"cpu": "cpu-2"}), container("a", {"cpu": "1500m"}))
    assert str(caught.value) == (
        'resourcesPolicy.resourcesExpr.limits.cpu for cpu=1500m: expression "cpu-2" gives -500m, which is negative'
    )


def test_an_unreadable_quantity_in_the_pod_is_refused_with_its_field() -> None:
    with pytest.raises(ResourcesPolicyError, match=r"resources\.limits\.cpu of a container of the Pod: "):
        result(policy(limits={"cpu": "cpu"}), container("a", {"cpu": "lots"}))


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
        (policy(limits={"cpu": "1/cpu"}), "resourcesExpr.limits.cpu", "divided by a quantity"),
        (policy(limits={"memory": "MEMORY"}), "resourcesExpr.limits.memory", 'unknown name "MEMORY"'),
        (policy(limits={"memory": "100 - memory"}), "resourcesExpr.limits.memory", "negative"),
        (policy(limits={"cpu": "cpu/0"}), "resourcesExpr.limits.cpu", "division by zero"),
        (policy(limits={"cpu": "cpu*1e300"}), "resourcesExpr.limits.cpu", "out of range"),
        (policy(limits={"cpu": 1}), "resourcesExpr.limits.cpu", "must be a string"),
        (policy(limits="cpu"), "resourcesExpr.limits", "must be an object"),
        (policy(regex=5, limits={}), "targetContainersNameRegex", "must be a string"),  # type: ignore[arg-type]
        ({"targetContainersMode": "sum"}, "resourcesExpr", "Required value"),
    ],
)
def test_an_invalid_policy_is_refused_by_field(source: dict[str, Any], field: str, message: str) -> None:
    errors = policy_errors(source, AT)
    assert [error.field for error in errors] == [f"spec.containers[0].resourcesPolicy.{field}"]
    assert message in str(errors[0])


def test_a_non_object_is_not_a_policy() -> None:
    source: Any = []
    assert [error.field for error in policy_errors(source, AT)] == ["spec.containers[0].resourcesPolicy"]
    with pytest.raises(ResourcesPolicyError):
        compile_policy(source)


@pytest.mark.behaviour("SS-23", "SS-67")
@pytest.mark.parametrize(
    "source",
    [
        policy(**HALF_OR_50M),
        policy(regex=None, limits={"memory": "memory/3"}),
        policy(limits={}, requests={}),
        policy(limits={"cpu": ""}),
        # Negative for small containers only: admitted by OpenKruise as well.
        policy(limits={"cpu": "cpu - 500m"}),
        policy(limits={"cpu": "2 - cpu"}),
    ],
)
def test_a_valid_policy_is_accepted(source: dict[str, Any]) -> None:
    assert policy_errors(source, AT) == []
    compile_policy(source)


@pytest.mark.behaviour("SS-67")
def test_compiling_does_not_repeat_validation() -> None:
    """A set stored before the check existed still injects wherever its expression has a value."""
    assert result(policy(limits={"cpu": "cpu-2"}), container("a", {"cpu": "3"})) == {"limits": {"cpu": "1"}}


amounts = st.integers(0, 10**5).map(lambda milli: f"{milli}m")


@pytest.mark.behaviour("SS-62", "SS-67")
@given(st.lists(st.tuples(amounts, amounts), min_size=1, max_size=4), st.sampled_from(["sum", "max"]))
def test_a_computed_limit_is_never_below_its_request(resources: list[tuple[str, str]], mode: str) -> None:
    targets = [container(str(i), {"cpu": limit}, {"cpu": request}) for i, (limit, request) in enumerate(resources)]
    computed = result(policy(mode, limits={"cpu": "cpu*50%"}, requests={"cpu": "cpu*70%"}), *targets)
    limit, request = parse(computed["limits"]["cpu"]), parse(computed["requests"]["cpu"])
    assert limit >= request
    combine = sum if mode == "sum" else max
    assert request.milli_value() == int(float(combine(parse(r).milli_value() for _, r in resources)) * 0.7)
