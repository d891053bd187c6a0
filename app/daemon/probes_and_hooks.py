"""Run probes and lifecycle hooks (a command, an HTTP request or a TCP connection), and stop containers. [KD-51,
KD-64]"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.parse import quote as percent_encoded

import msgspec

from app.daemon.cri.types import ContainerDetails, CriError, DeadlineExceeded, NoSuchContainer, Runtime
from app.daemon.objects import ExecAction, Handler, HttpGetAction, TcpSocketAction
from app.kube.clock import Clock
from app.kube.events import EventRecorder
from app.kube.fielderrors import duration, quote
from app.kube.http1 import Connection, ConnectionLost, Head, HttpError
from app.kube.objects import ContainerPort, ObjectReference
from app.kube.resources import PODS

T = TypeVar("T")

#: Maximum number of bytes read from a command's output or a server's response.
MAX_OUTPUT: Final = 10 * 1024
#: Maximum length of a message: one with more characters is cut to this number of bytes. [KD-65]
MAX_MESSAGE: Final = 1024
MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: Maximum number of Pods for which a controller runs commands and hooks concurrently. Tenants choose how long these
#: take, so there are more workers than Pods on a node (110 by default). [CRR-67]
WORKERS: Final = 128
#: Characters of a path that are not percent-encoded.
_PATH_SAFE: Final = "/?#[]@!$&'()*+,;=:%~"


class HookError(Exception):
    """The hook could not be run or failed. ``output`` is what the hook printed."""

    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output


class ProbeError(Exception):
    """The probe could not be run, so the state of the container is unknown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a probe."""

    succeeded: bool
    message: str = ""


def text_of(output: bytes) -> str:
    """Return output as a status message, without NUL characters and cut at a character boundary. [KD-65]"""
    text = output[:MAX_OUTPUT].decode("utf-8", "ignore").replace("\x00", "")
    return text if len(text) <= MAX_MESSAGE else text.encode()[:MAX_MESSAGE].decode("utf-8", "ignore")


def port_number(port: int | str, ports: Sequence[ContainerPort]) -> int:
    """Return the number of a port given by number or name. Raises ``LookupError``."""
    if isinstance(port, str):
        if port.isascii() and port.isdigit() and len(port) < 6:
            port = int(port)
        else:
            number = next((one.container_port for one in ports if one.name == port), 0)
            if not number:
                raise LookupError(f"the container has no port {port!r}")
            port = number
    if not 0 < port < 65536:
        raise LookupError(f"{port} is not a valid port")
    return port


async def probe_command(runtime: Runtime, container_id: str, action: ExecAction, seconds: float) -> Outcome:
    """Run a command in the container; exit code 0 means success. Raises ``ProbeError`` if the runtime cannot run it.
    [KD-64]"""
    try:
        result = await runtime.execute(container_id, action.command, seconds)
    except DeadlineExceeded:
        # The runtime's message depends on which side timed out first, and every new message would be reported as a
        # change.
        said = f"command timed out: {quote(' '.join(action.command))} timed out after {duration(seconds)}"
        return Outcome(succeeded=False, message=text_of(said.encode("utf-8", "replace")))
    except CriError as error:
        raise ProbeError(str(error)) from error
    if result.code == 0:
        return Outcome(succeeded=True, message=text_of(result.stdout))
    return Outcome(succeeded=False, message=text_of(result.stderr))


def _probed_port(action: TcpSocketAction | HttpGetAction) -> int:
    try:
        return port_number(action.port, ())
    except LookupError as error:
        raise ProbeError(str(error)) from None


def _scheme(action: HttpGetAction) -> str:
    return action.scheme.lower() or "http"


def _target(action: HttpGetAction) -> str:
    target = percent_encoded(action.path or "/", safe=_PATH_SAFE)
    return target if target.startswith("/") else f"/{target}"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _not_dialled(host: str, port: int, error: Exception) -> str:
    """Return why the connection failed, in Go's words; system errors start with a lowercase letter."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "http: server gave HTTP response to HTTPS client"
        return f"tls: {(error.reason or str(error)).replace('_', ' ').lower()}"
    reason = _reason(error)
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        reason = f"connect: {reason[:1].lower()}{reason[1:]}"
    return f"dial tcp {_joined(host, port)}: {reason}"


async def _get(action: HttpGetAction, host: str, port: int) -> tuple[int, bytes]:
    scheme, target = _scheme(action), _target(action)
    for _ in range(MAX_REDIRECTS):
        head, body = await _ask(action, scheme, host, port, target)
        location = head.headers.get("location")
        if head.status not in _REDIRECTS or not location:
            return head.status, body
        parts = _redirected(scheme, host, port, target, location)
        if parts.hostname != host:
            return head.status, body
        scheme, port = parts.scheme, parts.port or (443 if parts.scheme == "https" else 80)
        target = percent_encoded(parts.path or "/", safe=_PATH_SAFE) + (f"?{parts.query}" if parts.query else "")
    raise HttpError(f"stopped after {MAX_REDIRECTS} redirects")


def _redirected(scheme: str, host: str, port: int, target: str, location: str) -> SplitResult:
    """Return the target of a redirect. Raises ``HttpError`` if it is invalid: the probed server may send anything."""
    try:
        parts = urlsplit(urljoin(f"{scheme}://{_joined(host, port)}{target}", location))
        _ = parts.port
    except ValueError as error:
        raise HttpError(f"redirected to an invalid URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise HttpError(f"redirected to unsupported protocol {parts.scheme!r}")
    return parts


async def _ask(action: HttpGetAction, scheme: str, host: str, port: int, target: str) -> tuple[Head, bytes]:
    headers = {"Host": _joined(host, port), "User-Agent": "kube-probe/pykruise", "Accept": "*/*", "Connection": "close"}
    known = {name.lower(): name for name in headers}
    for header in action.http_headers:
        if "\n" not in header.name + header.value and "\r" not in header.name + header.value:
            headers[known.get(header.name.lower(), header.name)] = header.value
    connection = await Connection.open(host, port, _unverified() if scheme == "https" else None)
    try:
        head = await connection.send("GET", target, headers, None)
        body = b""
        with suppress(HttpError):
            async for piece in connection.pieces():
                body += piece
                if len(body) >= MAX_OUTPUT:
                    break
        return head, body[:MAX_OUTPUT]
    finally:
        connection.close()


class Network:
    """Sends requests from the node to Pods. Simulations replace it."""

    async def connection(self, action: TcpSocketAction, pod_ip: str, seconds: float) -> Outcome:
        """Run a TCP probe, which succeeds if the connection can be opened. [KD-64]"""
        host, port = action.host or pod_ip, _probed_port(action)
        try:
            async with asyncio.timeout(seconds):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            return Outcome(succeeded=False, message=f"dial tcp {_joined(host, port)}: i/o timeout")
        except (OSError, ValueError) as error:
            return Outcome(succeeded=False, message=_not_dialled(host, port, error))
        writer.close()
        return Outcome(succeeded=True)

    async def request(self, action: HttpGetAction, pod_ip: str, seconds: float) -> Outcome:
        """Run an HTTP probe. Status codes 200 to 399 mean success. Redirects to the same host are followed; a redirect
        to another host counts as success. [KD-64]"""
        host, port = action.host or pod_ip, _probed_port(action)
        try:
            async with asyncio.timeout(seconds):
                status, body = await _get(action, host, port)
        except TimeoutError:
            why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        except OSError as error:
            why = _not_dialled(host, port, error)
        except ConnectionLost:
            why = "EOF"
        except HttpError as error:
            why = str(error)
        else:
            why = ""
        if why:
            url = f"{_scheme(action)}://{_joined(host, port)}{_target(action)}"
            return Outcome(succeeded=False, message=text_of(f"Get {quote(url)}: {why}".encode("utf-8", "replace")))
        if 300 <= status < 400:
            return Outcome(succeeded=True, message=text_of(b"Probe terminated redirects, Response body: " + body))
        if 200 <= status < 300:
            return Outcome(succeeded=True, message=text_of(body))
        return Outcome(succeeded=False, message=f"HTTP probe failed with statuscode: {status}")

    async def hook(self, action: HttpGetAction, host: str, port: int) -> int:
        """Run an HTTP hook and return the status code. Raises ``OSError`` and ``HttpError``."""
        return (await _get(action, host, port))[0]


_context: ssl.SSLContext | None = None


def _unverified() -> ssl.SSLContext:
    """Return a context that verifies nothing, as the kubelet does: few containers have a trusted certificate."""
    global _context
    if _context is None:
        _context = ssl.create_default_context()
        _context.check_hostname = False
        _context.verify_mode = ssl.CERT_NONE
    return _context


async def run_hook(
    runtime: Runtime,
    container_id: str,
    hook: Handler,
    ports: Sequence[ContainerPort],
    pod_ip: str,
    clock: Clock,
    network: Network,
) -> None:
    """Run the preStop hook. Raises ``HookError`` or ``CriError``; the caller limits the time. [KD-51, CRR-61]"""
    if hook.exec is not None:
        result = await runtime.execute(container_id, hook.exec.command, 0)
        if result.code != 0:
            shown = " ".join(hook.exec.command)
            raise HookError(
                f"command '{shown}' exited with {result.code}: {text_of(result.stderr)}",
                text_of(result.stdout + result.stderr),
            )
    elif hook.http_get is not None:
        host = hook.http_get.host or pod_ip
        if not host:
            raise HookError("the IP address of the Pod is unknown")
        try:
            status = await network.hook(hook.http_get, host, port_number(hook.http_get.port, ports))
        except (OSError, HttpError, LookupError) as error:
            raise HookError(_reason(error)) from error
        if not 200 <= status < 400:
            raise HookError(f"the request failed with status code {status}")
    elif hook.sleep is not None:
        await clock.sleep(hook.sleep.seconds)
    else:
        raise HookError("invalid handler: exec, httpGet or sleep is required")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


# Stops containers as the kubelet does: record an event, run the hook, wait for the grace period. [KD-50 … KD-52]

logger = logging.getLogger(__name__)

#: Grace period in seconds if neither the request nor the Pod sets one. [KD-50]
DEFAULT_GRACE: Final = 30
SHORTEST_GRACE: Final = 2
#: Longest grace period passed to a runtime, in seconds (one day).
LONGEST_GRACE: Final = 86400
#: Annotations that the kubelet records on every container. [KD-14]
PRE_STOP: Final = "io.kubernetes.container.preStopHandler"
PORTS: Final = "io.kubernetes.container.ports"
_decode_hook: Final = msgspec.json.Decoder(Handler).decode
_decode_ports: Final = msgspec.json.Decoder(tuple[ContainerPort, ...]).decode


def grace_left(grace: int, elapsed: float) -> int:
    """Return the rest of the grace period after the hook, in whole seconds. [KD-50]"""
    return max(SHORTEST_GRACE, min(grace, LONGEST_GRACE) - int(elapsed))


def recorded_hook(details: ContainerDetails) -> Handler | None:
    """Return the preStop hook that the kubelet recorded with the container; None if it is missing or unreadable."""
    return _recorded(details, PRE_STOP, _decode_hook)


def _recorded(details: ContainerDetails, key: str, decode: Callable[[str], T]) -> T | None:
    text = details.annotations.get(key, "")
    try:
        return decode(text) if text else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def container_reference(namespace: str, name: str, uid: str, container: str) -> ObjectReference:
    """Return the reference to a container of a Pod, for events."""
    return ObjectReference(
        api_version=PODS.api_version,
        kind=PODS.kind,
        namespace=namespace,
        name=name,
        uid=uid,
        field_path=f"spec.containers{{{container}}}",
    )


def hook_failed(hook: Handler, regarding: ObjectReference, error: Exception) -> str:
    """Return the event message for a failed hook, in the kubelet's words. [KD-51]"""
    if hook.exec is not None:
        kind, shown = "Exec", f"[{' '.join(hook.exec.command)}]"
    elif hook.http_get is not None:
        kind, shown = "HTTP", hook.http_get.path
    else:
        return f"Cannot run handler: {error}"
    container = regarding.field_path.partition("{")[2].removesuffix("}")
    pod = f"{regarding.name}_{regarding.namespace}({regarding.uid})"
    said = error.output if isinstance(error, HookError) else ""
    return (
        f"{kind} lifecycle hook ({shown}) for Container {quote(container)} in Pod {quote(pod)} failed - "
        f"error: {error}, message: {quote(said)}"
    )


class Stopper:
    """Stops containers and records events on their Pods."""

    def __init__(self, clock: Clock, recorder: EventRecorder, network: Network) -> None:
        self._clock = clock
        self._recorder = recorder
        self._network = network

    async def stop(
        self,
        runtime: Runtime,
        details: ContainerDetails,
        regarding: ObjectReference,
        message: str,
        *,
        grace: int | None,
        pod_ip: str = "",
    ) -> None:
        """Stop the container; succeed if it is already gone. Raises ``CriError``.

        The hook is the one recorded in the runtime, not the one in the request: tenants write requests, and hooks can
        reach the node's network. [CRR-68]
        """
        container_id, hook = details.id, recorded_hook(details)
        self._recorder.event(regarding, "Normal", "Killing", message)
        grace = DEFAULT_GRACE if grace is None else grace
        began = self._clock.monotonic()
        if hook is not None and grace > 0:
            await self._run_hook(runtime, details, regarding, hook, pod_ip, grace)
        try:
            await runtime.stop(container_id, grace_left(grace, self._clock.monotonic() - began))
        except NoSuchContainer:
            logger.info("container %s had already exited", container_id)

    async def _run_hook(
        self,
        runtime: Runtime,
        details: ContainerDetails,
        regarding: ObjectReference,
        hook: Handler,
        pod_ip: str,
        grace: int,
    ) -> None:
        """Run the hook for at most the grace period. A failure is only recorded as an event. [KD-51]"""
        try:
            ports = _recorded(details, PORTS, _decode_ports) or ()
            running = run_hook(runtime, details.id, hook, ports, pod_ip, self._clock, self._network)
            await self._clock.wait_for(running, grace)
        except TimeoutError:
            why = f"preStop hook not completed in grace period of {grace} s"
        except (HookError, CriError) as error:
            why = hook_failed(hook, regarding, error)
        else:
            return
        self._recorder.event(regarding, "Warning", "FailedPreStopHook", why)
