from app.kube import validation
from app.kube.fielderrors import Path
from app.kube.validation import validate_annotations, validate_labels
from tests.kube.recorded import cases, for_each

RULES = {
    "qualifiedName": validation.is_qualified_name,
    "labelValue": validation.is_label_value,
    "dns1123Label": validation.is_dns1123_label,
    "dns1123Subdomain": validation.is_dns1123_subdomain,
    "dns1035Label": validation.is_dns1035_label,
    "configMapKey": validation.is_config_map_key,
    "envVarName": validation.is_env_var_name,
    "portName": validation.is_port_name,
    "percent": validation.is_percent,
}


@for_each(cases("names"))
def test_name_errors_match_kubernetes(text: str, expected: dict[str, list[str]]) -> None:
    found = {rule: messages for rule, check in RULES.items() if (messages := check(text))}
    assert found == expected


def test_port_numbers_run_from_1_to_65535() -> None:
    assert [validation.is_port_number(port) for port in (1, 65535)] == [[], []]
    assert validation.is_port_number(0) == validation.is_port_number(65536) != []


def test_labels_are_reported_in_key_order() -> None:
    errors = validate_labels({"b b": "x", "a": "y y"}, Path("metadata").child("labels"))
    assert [(error.field, error.value) for error in errors] == [("metadata.labels", "y y"), ("metadata.labels", "b b")]


def test_annotation_keys_may_have_an_upper_case_prefix() -> None:
    assert validate_annotations({"Example.COM/Key": "any text"}, Path("metadata")) == []
    assert [error.value for error in validate_annotations({"a b": ""}, Path("metadata"))] == ["a b"]


def test_annotations_hold_256_kib_together() -> None:
    assert validate_annotations({"a": "x" * (256 * 1024 - 1)}, Path("metadata")) == []
    errors = validate_annotations({"a": "é" * (128 * 1024)}, Path("metadata").child("annotations"))
    assert [str(error) for error in errors] == ["metadata.annotations: Too long: may not be more than 262144 bytes"]
