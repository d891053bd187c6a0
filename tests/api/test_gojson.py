import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.gocore import CONTAINER, VOLUME, container_json
from app.api.gojson import STRING, GoTypeError, dumps_go, go_value, list_of, map_of, normalized, struct
from tests.kube.recorded import cases, for_each

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(alphabet='a"<>&\\\u2028\u2029é\n\x01', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.behaviour("SS-12", "SS-13")
@for_each(cases("containers"))
def test_a_container_round_trips_as_in_go(container: dict[str, Any], expected: str | None) -> None:
    before = json.dumps(container)
    if expected is None:
        with pytest.raises(GoTypeError):
            container_json(container)
    else:
        assert dumps_go(container_json(container)) == expected
        assert dumps_go(container_json(json.loads(expected))) == expected
    assert json.dumps(container) == before


@pytest.mark.behaviour("SS-13")
def test_the_field_newer_than_the_recorded_order_comes_last() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1, 2]}}]
    printed = container_json({"restartPolicyRules": rules, "tty": True, "name": "a", "restartPolicy": "Never"})
    assert list(printed) == ["name", "resources", "restartPolicy", "tty", "restartPolicyRules"]
    assert printed["restartPolicyRules"] == rules


@given(json_values)
def test_text_and_value_agree(value: Any) -> None:
    text = dumps_go(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


@given(json_values)
def test_equal_maps_have_the_same_sorted_text(value: Any) -> None:
    assert dumps_go(value, sort_keys=True) == dumps_go(json.loads(json.dumps(value, sort_keys=True)), sort_keys=True)


@pytest.mark.behaviour("PM-84")
def test_text_is_escaped_as_go_escapes_it() -> None:
    assert dumps_go('<a>&\u2028\u2029 \x7f\b\f\n\r\t\x00\x1f"\\/é') == (
        '"\\u003ca\\u003e\\u0026\\u2028\\u2029 \x7f\\b\\f\\n\\r\\t\\u0000\\u001f\\"\\\\/é"'
    )
    assert dumps_go({"<": 1}) == '{"\\u003c":1}'


def test_a_lone_surrogate_is_replaced() -> None:
    assert dumps_go("a\ud800") == '"a\ufffd"'


def test_numbers_are_written_as_go_writes_them() -> None:
    whole = [0, 1.0, 1e6, 1e16, 1e20, 1e21, 1.5e21, 123456789012345678901.0, -1e100, 2**63]
    assert dumps_go(whole) == (
        "[0,1,1000000,10000000000000000,100000000000000000000,1e+21,1.5e+21,123456789012345680000,-1e+100,"
        "9223372036854775808]"
    )
    assert dumps_go([1.5, 0.1, 1e-6, 1e-7, 1.25e-9]) == "[1.5,0.1,0.000001,1e-7,1.25e-9]"
    assert dumps_go([None, True, False, [], {}]) == "[null,true,false,[],{}]"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", object()])
def test_unencodable_values_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        dumps_go(value)


def test_endless_nesting_is_refused() -> None:
    value: Any = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(ValueError, match="nested too deep"):
        dumps_go(value)


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"image": 5}, "image: expected string, found number"),
        ({"env": [{"name": "a"}, 5]}, "env[1]: expected object, found number"),
        ({"stdin": "true"}, "stdin: expected boolean, found string"),
        ({"command": {}}, "command: expected array, found object"),
        ({"ports": [{"containerPort": 80.5}]}, "ports[0].containerPort: expected integer, found 80.5"),
        ({"ports": [{"containerPort": 2**31}]}, "ports[0].containerPort: 2147483648 does not fit in 32 bits"),
        ({"resources": {"limits": {"cpu": "1x"}}}, "resources.limits[cpu]: quantities must match"),
        ({"securityContext": []}, "securityContext: expected object, found array"),
    ],
)
def test_a_mistyped_value_is_refused_with_its_path(container: dict[str, Any], message: str) -> None:
    with pytest.raises(GoTypeError) as caught:
        go_value(list_of(CONTAINER), [container], "spec.containers")
    assert str(caught.value).startswith(f"spec.containers[0].{message}")


def test_the_path_to_a_mistyped_value_shortens_a_long_key() -> None:
    """A path is built for each value below the key, and there may be hundreds of thousands."""
    with pytest.raises(GoTypeError, match=r"^x\[kkk") as caught:
        go_value(map_of(list_of(STRING)), {"k" * 1_000_000: ["", 1]}, "x")
    assert len(str(caught.value)) < 400


def test_null_becomes_the_zero_value() -> None:
    assert go_value(list_of(CONTAINER), None) is None
    assert go_value(list_of(CONTAINER), [None]) == [{"name": "", "resources": {}}]
    assert go_value(struct(), None) == {}


@pytest.mark.behaviour("SS-5")
def test_tidying_omits_what_go_omits_and_keeps_unknown_fields() -> None:
    given = {
        "stdin": False,
        "futureFlag": False,
        "env": [{"name": "A", "value": "", "futureSource": {"deep": [None]}}, {"name": "B", "value": "x"}],
        "securityContext": {"privileged": False, "runAsUser": 0},
        "resources": {"limits": {"memory": "1024Mi"}, "future": {}},
        "command": [],
        "name": "a",
    }
    before = json.dumps(given)
    assert normalized(CONTAINER, given) == {
        "name": "a",
        "env": [{"name": "A", "futureSource": {"deep": [None]}}, {"name": "B", "value": "x"}],
        "resources": {"limits": {"memory": "1Gi"}, "future": {}},
        "securityContext": {"privileged": False, "runAsUser": 0},
        "futureFlag": False,
    }
    assert json.dumps(given) == before


@pytest.mark.parametrize("volume", [{"name": 1}, {"name": "v", "hostPath": "/data"}, {"name": "v", "emptyDir": []}])
def test_tidying_refuses_a_mistyped_known_field(volume: Any) -> None:
    with pytest.raises(GoTypeError, match=r"^spec\.volumes\[0\]\."):
        normalized(list_of(VOLUME), [volume], "spec.volumes")


@pytest.mark.behaviour("SS-12")
@for_each([case for case in cases("containers") if case[1] is not None])
def test_tidying_matches_the_output_of_go(container: dict[str, Any], expected: str) -> None:
    kept = normalized(CONTAINER, container)
    assert dumps_go(container_json(kept)) == expected
    assert normalized(CONTAINER, kept) == kept


@pytest.mark.behaviour("SS-7", "SS-73")
@pytest.mark.parametrize(
    ("volume", "printed"),
    [
        ({"emptyDir": {"sizeLimit": "1024Mi", "medium": ""}}, '{"emptyDir":{"sizeLimit":"1Gi"}}'),
        ({"hostPath": {"path": "/x", "type": ""}}, '{"hostPath":{"path":"/x","type":""}}'),
        (
            {"downwardAPI": {"items": [{"path": "c", "resourceFieldRef": {"resource": "limits.cpu"}}]}},
            '{"downwardAPI":{"items":[{"path":"c","resourceFieldRef":{"resource":"limits.cpu","divisor":"0"}}]}}',
        ),
        (
            {"persistentVolumeClaim": {"claimName": "c", "readOnly": False}},
            '{"persistentVolumeClaim":{"claimName":"c"}}',
        ),
        ({"projected": {"defaultMode": 420}}, '{"projected":{"sources":null,"defaultMode":420}}'),
        (
            {"nfs": {"server": "s", "path": "/p", "readOnly": True}},
            '{"nfs":{"server":"s","path":"/p","readOnly":true}}',
        ),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1024Mi"}}}}}},
            '{"ephemeral":{"volumeClaimTemplate":{"metadata":{"creationTimestamp":null},'
            '"spec":{"resources":{"requests":{"storage":"1Gi"}}}}}}',
        ),
        (
            {"csi": {"driver": "d", "readOnly": False, "volumeAttributes": {"b": "1", "a": ""}}},
            '{"csi":{"driver":"d","readOnly":false,"volumeAttributes":{"a":"","b":"1"}}}',
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_volume_is_printed_as_in_go(volume: dict[str, Any], printed: str) -> None:
    assert dumps_go(go_value(VOLUME, {"name": "v", **volume})) == f'{{"name":"v",{printed[1:]}'
