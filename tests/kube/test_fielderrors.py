import pytest

from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    aggregate,
    duplicate,
    forbidden,
    format_float,
    go_string_map,
    go_string_slice,
    internal,
    invalid,
    not_found,
    not_supported,
    quote,
    required,
    too_long,
    too_many,
    type_invalid,
)

PATH = Path("spec").child("x")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (Path("spec").child("containers").index(0).child("image"), "spec.containers[0].image"),
        (Path("metadata").child("labels").key("a/b"), "metadata.labels[a/b]"),
        (Path("spec").child("a", "b"), "spec.a.b"),
        (Path().child("revision"), "revision"),
        (Path("spec").index(0).index(1), "spec[0][1]"),
    ],
)
def test_a_path_prints_as_in_kubernetes(path: Path, text: str) -> None:
    assert str(path) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (required(PATH), "spec.x: Required value"),
        (required(PATH, "no annotations defined"), "spec.x: Required value: no annotations defined"),
        (invalid(PATH, "s", "not this"), 'spec.x: Invalid value: "s": not this'),
        (invalid(PATH, 'a"b\n', ""), 'spec.x: Invalid value: "a\\"b\\n"'),
        (invalid(PATH, -1, "must be positive"), "spec.x: Invalid value: -1: must be positive"),
        (invalid(PATH, True), "spec.x: Invalid value: true"),
        (invalid(PATH, 0.5), "spec.x: Invalid value: 0.5"),
        (invalid(PATH, None, "missing"), 'spec.x: Invalid value: "null": missing'),
        (invalid(PATH, {"a": [1, "é"]}), 'spec.x: Invalid value: {"a":[1,"é"]}'),
        (invalid(PATH, GoLiteral("v1.X{}"), "bad"), "spec.x: Invalid value: v1.X{}: bad"),
        (type_invalid(PATH, "5"), 'spec.x: Invalid value: "5"'),
        (not_supported(PATH, "c", ["a", "b"]), 'spec.x: Unsupported value: "c": supported values: "a", "b"'),
        (not_supported(PATH, "c"), 'spec.x: Unsupported value: "c"'),
        (not_found(PATH, "v"), 'spec.x: Not found: "v"'),
        (duplicate(PATH, "v"), 'spec.x: Duplicate value: "v"'),
        (forbidden(PATH, "not now"), "spec.x: Forbidden: not now"),
        (too_long(PATH, 63), "spec.x: Too long: may not be more than 63 bytes"),
        (too_long(PATH, 1), "spec.x: Too long: may not be more than 1 byte"),
        (too_many(PATH, 3, 1), "spec.x: Too many: 3: must have at most 1 item"),
        (too_many(PATH, 4, 2), "spec.x: Too many: 4: must have at most 2 items"),
        (internal(PATH, "out of luck"), "spec.x: Internal error: out of luck"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_prints_as_in_kubernetes(error: FieldError, text: str) -> None:
    assert str(error) == text
    assert error.as_cause() == {"reason": str(error.type), "message": text.removeprefix("spec.x: "), "field": "spec.x"}


def test_several_errors_are_in_brackets_without_duplicates() -> None:
    first, second = required(PATH), duplicate(PATH, "v")
    assert aggregate([]) == ""
    assert aggregate([first]) == aggregate([first, first]) == "spec.x: Required value"
    assert aggregate([first, second, first]) == '[spec.x: Required value, spec.x: Duplicate value: "v"]'
    assert aggregate([first, "plain text"]) == "[spec.x: Required value, plain text]"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", '"plain"'),
        ("a\\b", r'"a\\b"'),
        ("a\u00a0\u200b\x7f\x01é\U0001f600", r'"a\u00a0\u200b\x7f\x01é' + '\U0001f600"'),
        ("\a\b\f\r\t\v", r'"\a\b\f\r\t\v"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("\ud800", '"\ufffd"'),
    ],
)
def test_text_is_quoted_as_in_go(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e6, "1e+06"),
        (123456789.0, "1.23456789e+08"),
        (100000.0, "100000"),
        (1e21, "1e+21"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-2.5e-7, "-2.5e-07"),
        (0.0, "0"),
        (-0.0, "-0"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
    ],
)
def test_floats_print_as_in_go(value: float, text: str) -> None:
    assert format_float(value) == text


def test_a_path_with_a_long_key_is_shortened() -> None:
    """It may precede hundreds of thousands of fields."""
    path = Path("spec").child("images", "x" * 1_000_000)
    for _ in range(1_000):
        path = path.child("tags").index(0).key("a")
    assert str(path).startswith("spec.images.xxx")
    assert len(str(path)) <= 1_000


def test_string_maps_and_slices_print_like_go_structs() -> None:
    assert go_string_map(None) == "map[string]string(nil)"
    assert go_string_map({"b": "2", "a": "1"}) == 'map[string]string{"a":"1", "b":"2"}'
    assert go_string_slice(None) == "[]string(nil)"
    assert go_string_slice(["a", "b"]) == '[]string{"a", "b"}'
