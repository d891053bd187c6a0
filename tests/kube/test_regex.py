import pytest

from app.kube.regex import MAX_PATTERN_LENGTH, PatternError, compile_re2


@pytest.mark.behaviour("SS-122")
@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("oom", "x-oom-score", True),
        ("^oom$", "x-oom-score", False),
        (".*", "", True),
        ("", "anything", True),
        ("a$", "a\n", False),
        ("(?i)MAIN", "main", True),
        (r"^mesh\.example/.*$", "mesh.example/x", True),
        (r"^mesh\.example/.*$", "meshxexample/x", False),
        ("é", "café", True),
        ("a", "\ud800a", True),
    ],
)
def test_a_pattern_matches_anywhere(pattern: str, text: str, found: bool) -> None:
    assert compile_re2(pattern).search(text) is found


@pytest.mark.behaviour("SS-122")
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "missing closing ): `(a`"),
        ("[a", "missing closing ]: `[a`"),
        ("a)", "unexpected ): `a)`"),
        ("(", "missing closing ): `(`"),
        ("a(?=b)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("a{2000}", "invalid repeat count: `{2000}`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("a\\", "trailing backslash at end of expression: ``"),
    ],
)
def test_errors_have_the_words_of_go(pattern: str, message: str) -> None:
    with pytest.raises(PatternError) as raised:
        compile_re2(pattern)
    assert str(raised.value) == f"error parsing regexp: {message}"


@pytest.mark.behaviour("SS-122")
@pytest.mark.parametrize("pattern", ["(?<=a)b", "((a{100}){100}){100}"])
def test_other_patterns_unknown_to_re2_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="error parsing regexp"):
        compile_re2(pattern)


@pytest.mark.behaviour("SS-122")
def test_pattern_length_is_limited() -> None:
    compile_re2("a" * MAX_PATTERN_LENGTH)
    with pytest.raises(PatternError, match="more than the 1024 allowed"):
        compile_re2("a" * (MAX_PATTERN_LENGTH + 1))


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(PatternError, match="UTF-8"):
        compile_re2("\ud800")


def test_errors_are_not_printed_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError):
        compile_re2("(")
    assert capfd.readouterr().err == ""


@pytest.mark.behaviour("SS-122")
def test_a_backtracking_pattern_is_linear() -> None:
    # A backtracking engine would never finish.
    assert not compile_re2("^(a+)+$").search("a" * 5000 + "b")
