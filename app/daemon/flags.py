"""Flags of the node agent, including its feature gates. [KD-1 … KD-4]"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from app.daemon.agent import Features
from app.daemon.image_puller import MAX_WORKERS, SHARE_PERCENT
from app.kube import logs

_BOOLEANS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_LOGS: Final = "accepted for compatibility with OpenKruise; logs always go to standard error"


class UsageError(Exception):
    """Invalid command line or environment."""


class _Parser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line, like all commands."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (pykruise daemon --help lists all)")


class _Joined(argparse.Action):
    """Joins the values of a repeated flag with commas, as Go does for feature gates."""

    def __call__(self, _parser: object, options: argparse.Namespace, value: Any, _flag: str | None = None) -> None:
        setattr(options, self.dest, ",".join(filter(None, (getattr(options, self.dest), value))))


def parser() -> argparse.ArgumentParser:
    """Return a parser for the flags of OpenKruise's agent and --kubeconfig."""
    found = _Parser(prog="pykruise daemon", description="Run the node agent.", allow_abbrev=False)
    flag = found.add_argument
    flag("--kubeconfig", default="", help="path to a kubeconfig file; defaults to the service account of the Pod")
    flag("--addr", default=":10221", help="address that serves /healthz and /metrics")
    flag(
        "--socket-file",
        default="",
        help="container runtime socket, relative to /hostvarrun; detected by default",
    )
    flag(
        "--max-workers-for-pull-image",
        "--max-concurrency",
        type=int,
        default=MAX_WORKERS,
        help="maximum number of concurrent image pulls; unlimited by default",
    )
    flag(
        "--image-share-per-namespace",
        type=int,
        choices=range(1, 101),
        metavar="PERCENT",
        default=SHARE_PERCENT,
        help="percentage of --max-workers-for-pull-image (if 4 or more) that jobs in one namespace may use",
    )
    flag(
        "--plugin-config-file",
        "--image-credential-provider-config",
        default="/kruise/CredentialProviderPlugin.yaml",
        help="CredentialProviderConfig file, or a directory of such files; if it is missing, there are no providers",
    )
    flag(
        "--plugin-bin-dir",
        "--image-credential-provider-bin-dir",
        default="/kruise/plugins",
        help="directory of the credential provider programs",
    )
    flag(
        "--docker-config",
        default="/var/lib/kubelet",
        help="docker config.json, or a directory to search for it before the kubelet's other paths",
    )
    flag(
        "--rest-config-qps", type=float, default=0.0, help="requests per second to the API server; unlimited by default"
    )
    flag("--rest-config-burst", type=int, default=0, help="burst of requests to the API server above --rest-config-qps")
    flag("--feature-gates", action=_Joined, default="", help="A=true,B=false")
    flag(
        "--enable-pprof",
        nargs="?",
        const="true",
        default="true",
        help="accepted for compatibility; has no effect",
    )
    flag("--pprof-addr", default=":10222", help="accepted for compatibility; has no effect")
    flag("--v", "-v", type=int, default=0, help="log verbosity; 5 and above log everything")
    flag("--logging-format", choices=("text", "json"), default="text", help="log format: text or json")
    for name, is_boolean in logs.FLAGS_WITHOUT_EFFECT.items():
        flag(f"--{name}", nargs="?" if is_boolean else None, const="true" if is_boolean else None, help=_LOGS)
    return found


def flags() -> list[tuple[list[str], Any, str]]:
    """Return the names, default and help of every flag, sorted by name."""
    actions = [action for action in parser()._actions if action.dest != "help"]
    return sorted((list(action.option_strings), action.default, action.help or "") for action in actions)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. Raises :class:`UsageError`."""
    return parser().parse_args(logs.own_flags(arguments))


def without_effect(options: argparse.Namespace) -> list[str]:
    """Return the flags that were given but have no effect."""
    names = sorted(logs.FLAGS_WITHOUT_EFFECT)
    return [f"--{name}" for name in names if getattr(options, name.replace("-", "_")) is not None]


def gates(text: str) -> dict[str, bool]:
    """Parse --feature-gates. Raises :class:`UsageError`."""
    found = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if value.lower() not in _BOOLEANS or not name:
            raise UsageError(f"--feature-gates: {part!r} is not NAME=true or NAME=false")
        found[name.strip()] = _BOOLEANS[value.lower()]
    return found


def features(given: Mapping[str, bool]) -> Features:
    """Return the enabled features. A gate that is not set takes the value of its group; groups default to on. [KD-3]"""
    default = given.get("AllBeta", True)
    watches_pods = given.get("DaemonWatchingPod", default)
    return Features(
        probes=given.get("PodProbeMarkerGate", default),
        pods=watches_pods,
        env_from_metadata=watches_pods and given.get("InPlaceUpdateEnvFromMetadata", default),
    )


def address(text: str) -> tuple[str, int]:
    """Parse ``:10221`` or ``127.0.0.1:10221`` into host and port. Raises :class:`UsageError`."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise UsageError(f"--addr: {text!r} is not an address such as :10221")
    return host.strip("[]"), int(port)
