from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.sidecarset.injection.expressions import (
    MAX_DEPTH,
    MAX_LENGTH,
    ExpressionError,
    NegativeResultError,
    compile_expression,
)
from app.kube.quantities import Quantity, parse


def value(text: str, amount: str = "1", variable: str = "cpu") -> str:
    return str(compile_expression(text, variable).evaluate(parse(amount)))


def exact(quantity: Quantity) -> Fraction:
    return Fraction(quantity.unscaled) * Fraction(10) ** quantity.scale


@pytest.mark.behaviour("SS-64", "SS-65")
@pytest.mark.parametrize(
    ("text", "amount", "expected"),
    [
        ("cpu", "300m", "300m"),
        ("cpu*50%", "600m", "300m"),
        ("50%*cpu", "600m", "300m"),
        ("max(cpu*50%, 50m)", "400m", "200m"),
        ("max(cpu*50%, 50m)", "60m", "50m"),
        ("MAX(cpu, 2)", "1", "2"),
        ("Min(cpu,2)", "1", "1"),
        ("min(max(max(max(0.5,0.5*cpu),cpu-1.0),cpu-1.0),3.0)", "1", "500m"),
        ("min(max(max(max(0.5,0.5*cpu),cpu-1.0),cpu-1.0),3.0)", "8", "3"),
        ("cpu/3", "1", "333m"),
        ("cpu/50%", "1", "2"),
        ("cpu + 1", "500m", "1500m"),
        ("1 + cpu", "500m", "1500m"),
        ("1 + 2 * 3", "1", "7"),
        ("(1 + 2) * 3", "1", "9"),
        ("8 / 4 / 2", "1", "1"),
        ("8 - 4 - 2", "1", "2"),
        ("-1 + cpu", "3", "2"),
        ("--cpu", "3", "3"),
        ("cpu - -1", "3", "4"),
        ("2*-1 + cpu", "3", "1"),
        ("-(cpu - 5)", "3", "2"),
        (".5", "1", "500m"),
        ("1.", "1", "1"),
        ("1e3", "1", "1k"),
        ("2e-1", "1", "200m"),
        (" cpu\t*\n2 ", "1", "2"),
        ("1k", "1", "1k"),
        ("cpu*0", "5", "0"),
        ("cpu - cpu", "5", "0"),
        ("100m", "1", "100m"),
    ],
)
def test_expressions_have_the_values_of_openkruise(text: str, amount: str, expected: str) -> None:
    assert value(text, amount) == expected


@pytest.mark.behaviour("SS-64", "SS-65")
@pytest.mark.parametrize(
    ("text", "amount", "expected"),
    [
        ("max(memory*20% + 100Mi, 200Mi)", "800Mi", "260Mi"),
        ("memory/3", "100Mi", "34952533333m"),
        ("memory*50%", "100M", "50M"),
        ("memory + 1Gi", "1Gi", "2Gi"),
        ("1Ki + 1Mi", "1", "1025Ki"),
        ("memory + 1M", "1Gi", "1074741824"),
        ("1M + memory", "1Gi", "1074741824"),
        ("1Pi - 1Ti", "1", "1023Ti"),
        ("1G + 1T + 1P", "1", "1001001G"),
        ("0.5Gi", "1", "512Mi"),
    ],
)
def test_quantities_keep_their_suffix_family(text: str, amount: str, expected: str) -> None:
    assert value(text, amount, "memory") == expected


@pytest.mark.behaviour("SS-65", "SS-66")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.0019", "1m"),
        ("1.5", "1500m"),
        # 1.001 × 1000 is slightly below 1001 in floating point, and digits beyond a thousandth are truncated.
        ("1.001", "1"),
        ("0.0009", "0"),
        ("cpu + 0.0009", "1"),
        ("1 - 1.0005", "0"),
    ],
)
def test_a_plain_number_is_rounded_to_thousandths(text: str, expected: str) -> None:
    assert value(text) == expected


@pytest.mark.behaviour("SS-65")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu*cpu", "quantity cannot be multiplied by a quantity"),
        ("100m*cpu", "quantity cannot be multiplied by a quantity"),
        ("1/cpu", "divided by a quantity"),
        ("cpu/1m", "divided by a quantity"),
        ("cpu/0", "division by zero"),
        ("1/(2-2)", "division by zero"),
        ("cpu*1e300", "out of range"),
        ("1e300*1e300", "out of range"),
        ("1e300*1e300 - 1e300*1e300", "out of range"),
        (f"{'9' * 400}P*2", "out of range"),
        (f"{'9' * 400}P/2", "out of range"),
    ],
)
def test_an_expression_without_a_value_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        value(text)


@pytest.mark.behaviour("SS-65")
def test_a_negative_result_is_refused_but_intermediate_values_may_be_negative() -> None:
    with pytest.raises(NegativeResultError, match='"cpu-2" gives -1, which is negative'):
        value("cpu-2")
    with pytest.raises(NegativeResultError):
        value("-1")
    assert value("cpu - 2 + 3") == "2"
    assert value("max(cpu-2, 0)") == "0"


@pytest.mark.behaviour("SS-64", "SS-67")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected a number"),
        ("   ", "column 4: expected a number"),
        ("foo(", 'column 1: unknown name "foo"'),
        ("memory", 'column 1: unknown name "memory"; the variable is cpu'),
        ("CPU", 'column 1: unknown name "CPU"'),
        ("cpu cpu", 'column 5: expected an operator or the end, found "cpu"'),
        ("cpu +", "column 6: expected a number"),
        ("(cpu", 'column 5: expected ")", found the end'),
        ("cpu)", "column 4: expected an operator or the end"),
        ("max(cpu)", 'column 8: expected ","'),
        ("max(cpu,1,2)", 'column 10: expected ")"'),
        ("max", 'column 4: expected "("'),
        ("+5", "column 1: expected a number"),
        ("100mb", 'column 1: unknown suffix in "100mb"; known are %, m, k'),
        ("cpu*100E", 'column 5: unknown suffix in "100E"'),
        ("1Ei", "unknown suffix"),
        ("1u", "unknown suffix"),
        ("1e3m", "unknown suffix"),
        ("1.2.3", "unknown suffix"),
        ("50%%", "unknown suffix"),
        ("1e999", "out of range"),
        ("cpu ^ 2", 'column 5: unexpected character "\\^"'),
        ("cpu % 2", "unexpected character"),
        ("ｃｐｕ", "unexpected character"),
        ("١", "unexpected character"),
        ("cpu; 1", "unexpected character"),
    ],
)
def test_an_invalid_expression_is_refused_with_the_column(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message.replace("(", r"\(").replace(")", r"\)")):
        compile_expression(text, "cpu")


@pytest.mark.behaviour("SS-64")
def test_no_expression_recurses_without_limit() -> None:
    assert value("(" * (MAX_DEPTH - 1) + "cpu" + ")" * (MAX_DEPTH - 1)) == "1"
    assert value("-" * 400 + "cpu") == "1"
    assert value("cpu" + "+1" * 250) == "251"
    for bomb in ("(" * 200, "max(" * 100, "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH):
        with pytest.raises(ExpressionError, match="nested deeper than"):
            compile_expression(bomb, "cpu")
    with pytest.raises(ExpressionError, match="more than the 512 allowed"):
        compile_expression("1" * (MAX_LENGTH + 1), "cpu")


numbers = st.integers(0, 1000).map(str) | st.sampled_from(["50%", "0.25", ".5", "2e1"])
amounts = st.integers(0, 10**6).map(lambda milli: f"{milli}m")


@pytest.mark.behaviour("SS-65")
@given(amounts, amounts, amounts)
def test_sums_and_extremes_are_exact(one: str, two: str, variable: str) -> None:
    a, b, c = (exact(parse(text)) for text in (one, two, variable))
    result = compile_expression(f"max({one}, cpu) + min({two}, cpu)", "cpu").evaluate(parse(variable))
    assert exact(result) == max(a, c) + min(b, c)


@pytest.mark.behaviour("SS-65")
@given(amounts, numbers)
def test_scaling_rounds_down_within_a_thousandth(variable: str, factor: str) -> None:
    number = Fraction(factor.rstrip("%")) / (100 if factor.endswith("%") else 1)
    scaled = exact(compile_expression(f"cpu*{factor}", "cpu").evaluate(parse(variable)))
    wanted = exact(parse(variable)) * number
    assert wanted - Fraction(1, 1000) < scaled <= wanted


@given(st.text(alphabet="cpu0123456789.+-*/(),%mkMGi max", max_size=30))
def test_any_text_has_a_value_or_a_clear_error(text: str) -> None:
    try:
        result = compile_expression(text, "cpu").evaluate(parse("1500m"))
    except ExpressionError:
        return
    assert result.sign >= 0
