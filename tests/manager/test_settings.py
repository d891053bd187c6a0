"""Settings from flags and environment together."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.admission.configurations import ServiceEndpoint, UrlEndpoint
from app.kube.leases import LeaseTimes
from app.manager.flags import parse_flags
from app.manager.serving import StartError
from app.manager.settings import read_settings, renew_before


def settings(*arguments: str, **environ: str):
    return read_settings(parse_flags(arguments), environ)


def test_defaults_match_openkruise() -> None:
    found = settings()
    assert found.own_namespace == "kruise-system"
    assert found.webhook_port == 9876
    assert found.secret_name == "kruise-webhook-certs"
    assert found.certificate_folder is None
    assert found.certificate_hosts == ("kruise-webhook-service.kruise-system.svc",)
    assert found.endpoint(9876) == ServiceEndpoint("kruise-webhook-service", "kruise-system")
    assert found.bind_host == ""


@pytest.mark.behaviour("MGR-23")
def test_leader_election_uses_openkruise_times_unless_disabled() -> None:
    assert settings().election == LeaseTimes(15, 10, 2)
    assert settings("--enable-leader-election=false").election is None
    given = settings("--leader-election-lease-duration=1m", "--leader-election-renew-deadline=40s")
    assert given.election == LeaseTimes(60, 40, 2)
    with pytest.raises(StartError, match="--leader-election-…: leader election needs lease duration > renew deadline"):
        settings("--leader-election-lease-duration=5s")


def test_the_environment_of_a_deployment_is_read() -> None:
    found = settings(
        POD_NAMESPACE="elsewhere",
        WEBHOOK_PORT="1234",
        SECRET_NAME="s",
        SERVICE_NAME="svc",
        CERTS_RENEW_BEFORE="30d",
        CUSTOM_RESOURCE_ENABLE="CloneSet",
    )
    assert (found.own_namespace, found.webhook_port, found.secret_name) == ("elsewhere", 1234, "s")
    assert found.certificate_hosts == ("svc.elsewhere.svc",)
    assert found.renew_before == timedelta(days=30)
    assert not found.gates.enabled("PodWebhook")


def test_a_flag_overrides_the_variable() -> None:
    assert settings("--webhook-port=1", WEBHOOK_PORT="2").webhook_port == 1
    assert settings("--webhook-host=a", WEBHOOK_HOST="b").webhook_host == "a"
    assert settings(WEBHOOK_HOST="b").webhook_host == "b"


@pytest.mark.behaviour("MGR-30", "MGR-42")
def test_outside_the_cluster_host_and_port_define_url_and_certificate() -> None:
    found = settings("--webhook-host=10.0.0.1")
    assert found.endpoint(7) == UrlEndpoint("10.0.0.1", 7)
    assert found.certificate_hosts == ("10.0.0.1",)
    assert found.bind_host == ""


@pytest.mark.parametrize(("host", "bind"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1")])
def test_a_manager_registered_at_loopback_listens_there_only(host: str, bind: str) -> None:
    assert settings(f"--webhook-host={host}").bind_host == bind


def test_certificates_may_be_stored_in_a_folder() -> None:
    assert settings(WEBHOOK_CERT_WRITER="fs", WEBHOOK_CERT_DIR="/somewhere").certificate_folder == Path("/somewhere")
    assert settings(WEBHOOK_CERT_WRITER="secret").certificate_folder is None


@pytest.mark.parametrize(
    ("text", "days", "warned"),
    [
        ("30d", 30, False),
        ("2m", 60, False),
        ("1y", 365, False),
        ("", 180, False),
        ("0d", 180, True),
        ("x", 180, True),
        ("-1d", 180, True),
        # A certificate lasts ten years, so it would be renewed at every check.
        ("10y", 180, True),
        ("999999999999d", 180, True),
    ],
)
@pytest.mark.behaviour("MGR-33")
def test_invalid_renewal_time_falls_back_to_half_a_year_with_a_warning(
    text: str, days: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert renew_before(text) == timedelta(days=days)
    assert bool(caplog.messages) is warned
    assert all(message.startswith("CERTS_RENEW_BEFORE: ") for message in caplog.messages)


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--feature-gates=Nope=true"], {}, "--feature-gates: unknown feature gate 'Nope'"),
        ([], {"WEBHOOK_PORT": "²"}, "WEBHOOK_PORT: expected a port, 0 to 65535, got '²'"),
        ([], {"WEBHOOK_PORT": "x"}, "WEBHOOK_PORT: expected a port, 0 to 65535, got 'x'"),
        ([], {"WEBHOOK_PORT": "65536"}, "WEBHOOK_PORT: expected a port, 0 to 65535, got '65536'"),
        (["--controllers=false", "--webhooks=false"], {}, "--controllers=false and --webhooks=false are mutually"),
        ([], {"WEBHOOK_CERT_WRITER": "disk"}, "WEBHOOK_CERT_WRITER: expected secret or fs, got 'disk'"),
        (["--policies=/nowhere"], {}, "--policies: /nowhere does not exist"),
    ],
)
def test_invalid_settings_are_refused_by_name(arguments: list[str], environ: dict, message: str) -> None:
    with pytest.raises(StartError) as refused:
        settings(*arguments, **environ)
    assert message in str(refused.value)


@pytest.mark.behaviour("MGR-124")
@pytest.mark.parametrize(
    ("arguments", "among_others"),
    [
        pytest.param((), True, id="behind a Service"),
        pytest.param(("--webhook-host=127.0.0.1",), False, id="called directly on this machine"),
        pytest.param(
            ("--webhook-host=127.0.0.1", "--webhook-bind-address=127.0.0.1"), False, id="the same, said twice"
        ),
        pytest.param(("--webhook-host=kruise.example.com",), True, id="at a name that may be a balancer's"),
        pytest.param(("--webhook-host=127.0.0.1", "--webhook-bind-address=127.0.0.2"), True, id="behind a balancer"),
    ],
)
def test_a_replica_behind_a_service_waits_for_endpoints_before_it_ends(
    arguments: tuple[str, ...], among_others: bool
) -> None:
    assert settings(*arguments).among_others is among_others
