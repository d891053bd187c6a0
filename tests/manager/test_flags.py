"""The manager's command line: Go's syntax, OpenKruise's flags, clear errors."""

from pathlib import Path

import pytest

from app.framework.options import parse_bool
from app.generate.reference_pages import flags_page, gates_page
from app.kube.fielderrors import parse_duration
from app.manager.features import features
from app.manager.flags import FLAGS, FlagError, help_text, parse_flags
from app.manager.gates import GATES
from tests import openkruise

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--webhook-port=1234"], "webhook-port", 1234),
        (["--webhook-port", "1234"], "webhook-port", 1234),
        (["-webhook-port=1234"], "webhook-port", 1234),
        (["-v=4"], "v", 4),
        (["-v", "4"], "v", 4),
        (["--v=4"], "v", 4),
        (["--enable-leader-election"], "enable-leader-election", True),
        (["--enable-leader-election=false"], "enable-leader-election", False),
        (["--enable-leader-election", "false"], "enable-leader-election", False),
        (["--enable-leader-election", "--v=1"], "enable-leader-election", True),
        (["--webhook-initialize-timeout=1m30s"], "webhook-initialize-timeout", 90.0),
        (["--feature-gates=A=true,B=false"], "feature-gates", "A=true,B=false"),
        (["--feature-gates=A=true", "--feature_gates", "B=false"], "feature-gates", "A=true,B=false"),
        (["--metrics-addr="], "metrics-addr", ""),
        (["--metrics-addr=0"], "metrics-addr", "0"),
        (["--v=1", "--v=2"], "v", 2),
        (["--logging-format="], "logging-format", "text"),
        (["--zap-encoder=console"], "logging-format", "text"),
        (["--zap-encoder", "json"], "logging-format", "json"),
        (["--zap-log-level=debug"], "v", 5),
        (["--zap-log-level=4"], "v", 4),
        (["--log_dir=/a_b"], "log-dir", "/a_b"),
    ],
)
def test_flags_accept_all_go_spellings(arguments: list[str], name: str, value: object) -> None:
    flags = parse_flags(arguments)
    assert flags.values[name] == value
    assert name in flags.given


@pytest.mark.behaviour("MGR-10")
def test_every_flag_of_an_openkruise_deployment_is_accepted() -> None:
    more = "pprof-addr=localhost:8090 enable-pprof=true rate-limiter-base-delay=5ms leader-election-id=kruise-manager"
    more += " allow-privileged=true ws-enabled-versioned-status=deployment,replicaset"
    deployed = openkruise.deployment()["spec"]["template"]["spec"]["containers"][0]["args"]
    flags = parse_flags([*deployed, *(f"--{flag}" for flag in more.split())])
    assert "sync-period" in flags.without_meaning
    assert "logtostderr" in flags.without_meaning
    logging = "add_dir_header alsologtostderr=false log_backtrace_at=:0 log_dir=/x log_file=y log_file_max_size=1800"
    logging += " one_output skip_headers skip_log_headers stderrthreshold=2 vmodule=a=1 zap-devel"
    logging += " zap-stacktrace-level=x zap-time-encoding=epoch"
    ignored = parse_flags([f"--{flag}" for flag in logging.split()]).without_meaning
    assert set(ignored) == {flag.partition("=")[0].replace("_", "-") for flag in logging.split()}
    # Flags that have an effect cause no warning.
    assert "v" not in flags.without_meaning


@pytest.mark.behaviour("MGR-10")
def test_defaults_match_openkruise_except_for_the_rate_limit() -> None:
    flags = parse_flags([])
    assert flags.text("metrics-addr") == ":8080"
    assert flags.text("health-probe-addr") == ":8000"
    assert flags.integer("webhook-port") == 9876
    assert flags.seconds("webhook-initialize-timeout") == 60
    # API priority and fairness limits requests and answers 429.
    assert flags.seconds("rest-config-qps") == 0
    assert flags.integer("sidecarset-workers") == 3
    assert flags.boolean("enable-leader-election") is True
    assert flags.without_meaning == ()


LIMITS = (
    ("--rate-limiter-qps=0", "--rate-limiter-qps: expected at least 1, got '0'"),
    ("--rate-limiter-bucket-size=0", "--rate-limiter-bucket-size: expected at least 1, got '0'"),
    ("--rate-limiter-base-delay=0", "--rate-limiter-base-delay: expected more than 0s, got '0'"),
    ("--rate-limiter-max-delay=-1s", "--rate-limiter-max-delay: expected more than 0s, got '-1s'"),
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(pytest.param([flag], message, marks=pytest.mark.behaviour("PM-172")) for flag, message in LIMITS),
        (
            ["--kubeconfg=x"],
            "unknown flag --kubeconfg; did you mean --kubeconfig? (pykruise manager --help lists all)",
        ),
        (["--zzzz"], "unknown flag --zzzz (pykruise manager --help lists all)"),
        (["-x"], "unknown flag --x"),
        (["manager"], "unexpected argument 'manager': flags begin with --"),
        (["--"], "unexpected argument '--'"),
        (["--webhook-port"], "--webhook-port: needs a value (port of the admission service)"),
        (["--webhook-port=abc"], "--webhook-port: expected an integer, got 'abc'"),
        (["--webhook-port=70000"], "--webhook-port: expected a port, 0 to 65535, got '70000'"),
        (["--enable-leader-election=maybe"], "--enable-leader-election: expected true or false, got 'maybe'"),
        (["--webhook-initialize-timeout=60"], "expected a duration such as 15s or 2m30s, got '60'"),
        (["--logging-format=xml"], "--logging-format: expected text or json, got 'xml'"),
        (["--zap-encoder=xml"], "--logging-format: expected text or json, got 'xml'"),
        (["--allow-privileged=false"], "--allow-privileged: expected true; to forbid privileged Pods, label their"),
        (["--metrics-addr=8080"], "--metrics-addr: expected HOST:PORT or :PORT, got '8080'"),
        (["--metrics-addr=:x"], "--metrics-addr: expected an integer, got ':x'"),
        (["--rest-config-qps=many"], "--rest-config-qps: expected a number, got 'many'"),
        (["--sidecarset-workers=0"], "--sidecarset-workers: expected at least 1, got '0'"),
        (["--default-ttlseconds-for-always-nodeimage=-1"], "expected 0 to 2678400 seconds, got '-1'"),
        (["--default-ttlseconds-for-always-nodeimage=2678401"], "expected 0 to 2678400 seconds, got '2678401'"),
        (["--expectation-timeout=0s"], "--expectation-timeout: expected more than 0s, got '0s'"),
    ],
)
def test_an_invalid_flag_is_refused_with_a_hint(arguments: list[str], message: str) -> None:
    with pytest.raises(FlagError) as refused:
        parse_flags(arguments)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("15s", 15), ("2m", 120), ("1h30m", 5400), ("5ms", 0.005), ("1.5h", 5400), ("-2s", -2), ("+1s", 1)],
)
def test_durations_parse_as_in_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5", "5 s", "5x", "1s2", "--1s"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


def test_booleans_parse_as_in_go() -> None:
    assert [parse_bool(text) for text in ("1", "t", "T", "TRUE", "true", "True")] == [True] * 6
    assert [parse_bool(text) for text in ("0", "f", "F", "FALSE", "false", "False")] == [False] * 6
    with pytest.raises(ValueError, match="expected true or false"):
        parse_bool("yes")


def test_help_and_reference_show_every_flag_and_gate() -> None:
    text, page = help_text(), flags_page()
    for name in FLAGS:
        assert f"--{name}" in text
        assert f"`--{name}`" in page
    assert "| PodWebhook | true | Beta |" in gates_page()


def test_help_reference_and_chart_agree_on_gates_without_effect() -> None:
    text, page = help_text(), gates_page()
    values = (ROOT / "deploy" / "chart" / "values.yaml").read_text("utf-8")
    idle = sorted(name for name, gate in GATES.items() if not gate.acts)
    for name, gate in GATES.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {name} ")]
        assert ("(accepted, no effect)" in line) is not gate.acts
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
        assert ("*(no effect)*" in row) is not gate.acts
    assert f"# {' and '.join(idle)} are accepted without effect.\n" in values


@pytest.mark.behaviour("MGR-10")
def test_help_lists_exactly_the_flags_without_effect() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "app").rglob("*.py") if path.name != "flags.py"]
    read = {name for name in FLAGS if any(f'("{name}")' in text for text in sources)}
    read |= {name for one in features() for name in one.flags}
    read |= {part.workers_flag for one in features() for part in one.controllers if part.workers_flag}
    assert {flag.name for flag in FLAGS.values() if flag.meaningful} == read
