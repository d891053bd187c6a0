"""The manager's command line in Go's syntax: every flag of OpenKruise, and our own. Pure. [MGR-10]

``--x=true``, ``--x true``, ``-x=true`` and ``-v=4`` are all accepted, so that existing manifests work unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.framework.options import Flag, FlagValue, parse_bool, parse_delay, parse_integer, parse_positive
from app.kube.fielderrors import parse_duration
from app.kube.leases import LeaseTimes
from app.kube.logs import FLAGS_WITHOUT_EFFECT, own_flags
from app.kube.queue import RateLimits
from app.manager.features import features
from app.manager.gates import GATES


class FlagError(ValueError):
    """A flag is unknown, or its value is invalid."""


#: Defaults of the retry flags.
_RETRIES: Final = RateLimits()
#: Defaults of the leader election flags.
_LEASE: Final = LeaseTimes()
_LOGS: Final = "logs always go to standard error, in the format of --logging-format"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def _between(low: int, high: int, expected: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = parse_integer(text)
        if not low <= number <= high:
            raise ValueError(f"expected {expected}")
        return number

    return parse


_port: Final = _between(0, 65535, "a port, 0 to 65535")


def _privileged(text: str) -> bool:
    if not parse_bool(text):
        label = "pod-security.kubernetes.io/enforce=baseline"
        raise ValueError(f"expected true; to forbid privileged Pods, label their namespaces {label}")
    return True


def _logging_format(text: str) -> str:
    if text not in ("", "text", "json"):
        raise ValueError("expected text or json")
    return text or "text"


def _address(text: str) -> str:
    if text in ("", "0"):  # controller-runtime's value for "off"
        return text
    _, separator, port = text.rpartition(":")
    if not separator:
        raise ValueError("expected HOST:PORT or :PORT")
    _port(port)
    return text


def _flags() -> tuple[Flag, ...]:
    return (
        Flag("kubeconfig", "", str, "kubeconfig file; outside a cluster the default is $KUBECONFIG or ~/.kube/config"),
        Flag("webhook-host", "", str, "register webhooks by URL at this host, for a manager outside the cluster"),
        Flag("webhook-port", 9876, _port, "port of the admission service"),
        Flag(
            "dashboard-addr", "0", _address, "address of the dashboard, which only local clients may use; 0 disables it"
        ),
        Flag("webhook-docs", False, parse_bool, "serve local clients /docs and /openapi.json on the webhook port"),
        Flag("webhook-bind-address", "", str, "address the admission service listens on; empty means all interfaces"),
        Flag(
            "client-ca-file",
            "",
            str,
            "CA certificates in PEM; reviews are accepted only from clients with a certificate signed by one of them",
        ),
        Flag(
            "client-allowed-names",
            "",
            str,
            "comma-separated common names that client certificates may have; empty allows any",
        ),
        Flag("policies", "", str, "folder with webhooks.yaml, the operator's settings per webhook"),
        Flag("metrics-addr", ":8080", _address, "address of /metrics; 0 disables it"),
        Flag("health-probe-addr", ":8000", _address, "address of /healthz and /readyz; 0 disables them"),
        Flag("feature-gates", "", str, "A=true,B=false; AllAlpha= and AllBeta= set all gates of a stage"),
        Flag("logging-format", "text", _logging_format, "text or json"),
        Flag("v", 0, parse_integer, "log verbosity; 5 and higher log every decision", shorthand="v"),
        Flag("namespace", "", str, "watch Pods and workloads in this namespace only"),
        Flag("webhook-initialize-timeout", 60.0, parse_duration, "exit if there is no certificate within this time"),
        Flag("controller-cache-sync-timeout", 120.0, parse_duration, "exit if caches are not filled within this time"),
        Flag("rest-config-qps", 0.0, _number, "requests per second to the API server; 0 or less means no limit"),
        Flag("rest-config-burst", 50, parse_integer, "burst of requests to the API server above --rest-config-qps"),
        Flag("rate-limiter-base-delay", _RETRIES.base_delay, parse_delay, "initial retry delay of a failed key"),
        Flag("rate-limiter-max-delay", _RETRIES.max_delay, parse_delay, "maximum retry delay of a failed key"),
        Flag(
            "rate-limiter-qps",
            int(_RETRIES.qps),
            parse_positive,
            "requeues per second of each controller, after the burst",
        ),
        Flag("rate-limiter-bucket-size", _RETRIES.burst, parse_positive, "burst of requeues of each controller"),
        Flag(
            "enable-leader-election",
            True,
            parse_bool,
            "let only one replica reconcile; if false, this replica always reconciles",
        ),
        Flag(
            "leader-election-namespace", "kruise-system", str, "namespace of the Lease; defaults to the manager's own"
        ),
        Flag("leader-election-id", "kruise-manager", str, "name of the Lease"),
        Flag("leader-election-lease-duration", _LEASE.lease_duration, parse_duration, "duration of the Lease"),
        Flag(
            "leader-election-renew-deadline",
            _LEASE.renew_deadline,
            parse_duration,
            "time the leader keeps trying to renew the Lease",
        ),
        Flag(
            "leader-election-retry-period",
            _LEASE.retry_period,
            parse_duration,
            "interval between attempts to acquire or renew the Lease",
        ),
        Flag(
            "controllers",
            True,
            parse_bool,
            "reconcile while holding the Lease; if false, only serve reviews",
        ),
        Flag(
            "webhooks",
            True,
            parse_bool,
            "serve reviews; if false, register the webhooks once replicas with --controllers=false respond",
        ),
        Flag(
            "webhook-processes",
            2,
            _between(0, 64, "0 to 64 processes"),
            "number of processes that serve reviews; 0 runs everything in one process",
        ),
        Flag("process-hang-timeout", 10.0, _period, "restart a process that sends no heartbeat for this time"),
        Flag(
            "certificate-rotation-step",
            600.0,
            _period,
            "time for each step of a certificate rotation to reach all replicas and API servers",
        ),
    )


def _openkruise() -> tuple[Flag, ...]:
    """OpenKruise's other flags. All values are validated, even those of flags that no feature uses."""
    return (
        Flag("cloneset-scaling-exclude-preparing-delete", False, parse_bool, "do not count Pods in PreparingDelete"),
        Flag("protection-log-path", "/log", str, "folder of protection.log, which records denied deletions"),
        Flag("expectation-timeout", 300.0, parse_delay, "time after which an unmet expectation is dropped"),
        Flag("leader-election-resource-lock", "leases", str, "kind of the lock, always a Lease"),
        Flag("sync-period", "", str, "resync period of the caches"),
        Flag("allow-privileged", True, _privileged, "allow privileged containers in Pod templates; false is rejected"),
        Flag(
            "default-ttlseconds-for-always-nodeimage",
            300,
            _between(0, 2678400, "0 to 2678400 seconds"),
            "TTL of images with pull policy Always",  # [IMG-3]
        ),
        Flag(
            "image-share-per-namespace",
            100,
            _between(1, 100, "1 to 100"),
            "percentage of a NodeImage's free space that one namespace may use",
        ),
        Flag("nodeimage-creation-delay", 30.0, parse_duration, "delay before a ready Node gets its NodeImage"),
        Flag("assign-bcj-pods-by-scheduler", True, parse_bool, "let the scheduler place the Pods of BroadcastJobs"),
        Flag("assign-pods-by-scheduler", True, parse_bool, "let the scheduler place the Pods of DaemonSets"),
        Flag(
            "ws-enabled-versioned-status",
            "deployment,replicaset",
            str,
            "kinds for which a WorkloadSpread has a status per revision",
        ),
        Flag("enable-pprof", True, parse_bool, "Go's profiler"),
        Flag("pprof-addr", ":8090", str, "address of Go's profiler"),
        Flag("disable-no-deepcopy", False, parse_bool, "copy all objects that are listed from the cache"),
        *(
            Flag(name, name == "logtostderr" if is_boolean else "", parse_bool if is_boolean else str, _LOGS)
            for name, is_boolean in FLAGS_WITHOUT_EFFECT.items()
        ),
    )


def _all_flags() -> Mapping[str, Flag]:
    """Return the flags of the manager, OpenKruise and features. Raises ValueError for an undeclared flag."""
    found = {flag.name: flag for flag in _flags()}
    found |= {flag.name: replace(flag, meaningful=False) for flag in _openkruise()}
    for one in features():
        for flag in one.flags:
            if not isinstance(flag, str):
                found[flag.name] = flag
            elif flag in found:
                found[flag] = replace(found[flag], meaningful=True)
            else:
                raise ValueError(f"OpenKruise has no flag --{flag}: feature {one.name} must declare it")
        for part in one.controllers:
            if part.workers_flag:
                help_ = (
                    f"number of keys the {part.workers_flag.removesuffix('-workers')} controller processes concurrently"
                )
                found[part.workers_flag] = Flag(part.workers_flag, part.workers, parse_positive, help_)
    return found


def _period(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 1:
        raise ValueError("expected at least 1s")
    return seconds


FLAGS: Final[Mapping[str, Flag]] = _all_flags()
_SHORTHANDS: Final = {flag.shorthand: flag.name for flag in FLAGS.values() if flag.shorthand}


@dataclass(frozen=True, slots=True)
class Flags:
    """Values of all flags, and the names of those that were set."""

    values: Mapping[str, FlagValue]
    given: frozenset[str] = field(default_factory=frozenset)

    def text(self, name: str) -> str:
        return str(self.values[name])

    def integer(self, name: str) -> int:
        return int(self.values[name])

    def seconds(self, name: str) -> float:
        """Return the value of a numeric flag; durations are in seconds."""
        return float(self.values[name])

    def boolean(self, name: str) -> bool:
        return bool(self.values[name])

    @property
    def without_meaning(self) -> tuple[str, ...]:
        """Return the flags that were set but have no effect."""
        return tuple(sorted(name for name in self.given if not FLAGS[name].meaningful))


def parse_flags(arguments: Sequence[str]) -> Flags:
    """Parse a command line. Raises FlagError naming the flag and the expected value."""
    values: dict[str, FlagValue] = {flag.name: flag.default for flag in FLAGS.values()}
    given: set[str] = set()
    pending = own_flags(arguments)
    while pending:
        argument = pending.pop(0)
        name, separator, text = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or not name:
            raise FlagError(f"unexpected argument {argument!r}: flags begin with --")
        flag = FLAGS.get(_SHORTHANDS.get(name, name))
        if flag is None:
            raise FlagError(_unknown(name))
        if not separator:
            text = _separate_value(flag, pending)
        if name == "feature-gates" and name in given:
            text = f"{values[name]},{text}"  # As in Go, repeated flags are joined.
        try:
            values[flag.name] = flag.parse(text)
        except ValueError as error:
            raise FlagError(f"--{flag.name}: {error}, got {text!r}") from None
        given.add(flag.name)
    return Flags(values, frozenset(given))


def _separate_value(flag: Flag, pending: list[str]) -> str:
    """Return the value of ``--flag value``. A boolean flag needs no value: ``--flag`` means ``--flag=true``."""
    if isinstance(flag.default, bool):
        if pending and pending[0].lower() in ("true", "false"):
            return pending.pop(0)
        return "true"
    if not pending:
        raise FlagError(f"--{flag.name}: needs a value ({flag.help})")
    return pending.pop(0)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, FLAGS, n=1, cutoff=0.6)
    hint = f"; did you mean --{near[0]}?" if near else ""
    return f"unknown flag --{name}{hint} (pykruise manager --help lists all)"


def help_text() -> str:
    """Return the output of ``pykruise manager --help``."""
    lines = ["Usage: pykruise manager [flags]", "", "Flags:"]
    for flag in sorted(FLAGS.values(), key=lambda flag: flag.name):
        note = "" if flag.meaningful else " (accepted, no effect)"
        lines.append(f"  --{flag.name:<42} {flag.help}{note} (default {shown(flag.default)})")
    lines += ["", "Feature gates:"]
    for name, gate in GATES.items():
        note = "" if gate.acts else " (accepted, no effect)"
        lines.append(f"  {name:<44} {gate.effect}{note} ({gate.stage}, default {shown(gate.default)})")
    return "\n".join(lines)


def shown(value: FlagValue) -> str:
    """Format a default value for display."""
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, str) else f"{value:g}"
