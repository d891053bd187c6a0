"""What probes and hooks do: run a command in a container, send a request, open a connection (KD-51, KD-64)."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.parse import quote as percent_encoded

from app.daemon.cri import CriError, DeadlineExceeded, Runtime
from app.daemon.objects import ContainerPort, ExecAction, Handler, HttpGetAction, TcpSocketAction
from app.kube.clock import Clock
from app.kube.gotext import duration, quote
from app.kube.plainhttp import Connection, ConnectionLost, Head, HttpError

#: How much is read of what a command prints or a server answers.
MAX_OUTPUT: Final = 10 * 1024
#: KD-65: of a message with more characters than this, so many bytes are reported.
MAX_MESSAGE: Final = 1024
MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: What a path may have as it stands.
_PATH_SAFE: Final = "/?#[]@!$&'()*+,;=:%~"


class HookError(Exception):
    """The hook could not be run, or failed. ``output``: what it said."""

    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output


class ProbeError(Exception):
    """The probe itself could not be made: nothing is known of the container."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a probe found out."""

    succeeded: bool
    message: str = ""


def text_of(output: bytes) -> str:
    """Output as a message: KD-65, cut at a character (KD-95), without what no status may contain."""
    text = output[:MAX_OUTPUT].decode("utf-8", "ignore").replace("\x00", "")
    return text if len(text) <= MAX_MESSAGE else text.encode()[:MAX_MESSAGE].decode("utf-8", "ignore")


def port_number(port: int | str, ports: Sequence[ContainerPort]) -> int:
    """The number of a port that may have a name. Raises ``LookupError``."""
    if isinstance(port, str):
        if port.isascii() and port.isdigit() and len(port) < 6:
            port = int(port)
        else:
            port = next((one.container_port for one in ports if one.name == port), 0) or _unknown(port)
    if not 0 < port < 65536:
        raise LookupError(f"{port} is no port")
    return port


def _unknown(port: str) -> int:
    raise LookupError(f"the container has no port {port!r}")


async def probe_command(runtime: Runtime, container_id: str, action: ExecAction, seconds: float) -> Outcome:
    """KD-64: exit code 0 is success. Raises ``ProbeError`` where the runtime cannot say."""
    try:
        result = await runtime.execute(container_id, action.command, seconds)
    except DeadlineExceeded:
        # The runtime's own words differ with who noticed first, and each time they differ would be news.
        said = f"command timed out: {quote(' '.join(action.command))} timed out after {duration(seconds)}"
        return Outcome(succeeded=False, message=text_of(said.encode("utf-8", "replace")))
    except CriError as error:
        raise ProbeError(str(error)) from error
    if result.code == 0:
        return Outcome(succeeded=True, message=text_of(result.stdout))
    return Outcome(succeeded=False, message=text_of(result.stderr))


async def probe_connection(action: TcpSocketAction, pod_ip: str, seconds: float) -> Outcome:
    """KD-64: that it can be opened is success."""
    try:
        port = port_number(action.port, ())
    except LookupError as error:
        raise ProbeError(str(error)) from None
    host = action.host or pod_ip
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Outcome(succeeded=False, message=f"dial tcp {_joined(host, port)}: i/o timeout")
    except (OSError, ValueError) as error:
        return Outcome(succeeded=False, message=_not_dialled(host, port, error))
    writer.close()
    return Outcome(succeeded=True)


async def probe_request(action: HttpGetAction, pod_ip: str, seconds: float) -> Outcome:
    """KD-64: 200 to 399 is success; redirects are followed on the same host, and count as success to others."""
    try:
        port = port_number(action.port, ())
    except LookupError as error:
        raise ProbeError(str(error)) from None
    host = action.host or pod_ip
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


def _scheme(action: HttpGetAction) -> str:
    return action.scheme.lower() or "http"


def _target(action: HttpGetAction) -> str:
    target = percent_encoded(action.path or "/", safe=_PATH_SAFE)
    return target if target.startswith("/") else f"/{target}"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _not_dialled(host: str, port: int, error: Exception) -> str:
    """Why there is no connection, in the words that Go has for it; those of the system without their capital."""
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
    """Where a redirect leads. Raises ``HttpError``: whoever is probed may answer with anything."""
    shown = f"[{host}]" if ":" in host else host
    try:
        parts = urlsplit(urljoin(f"{scheme}://{shown}:{port}{target}", location))
        _ = parts.port
    except ValueError as error:
        raise HttpError(f"redirected to no address: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise HttpError(f"redirected to the protocol {parts.scheme!r}, which is not followed")
    return parts


async def _ask(action: HttpGetAction, scheme: str, host: str, port: int, target: str) -> tuple[Head, bytes]:
    shown = f"[{host}]" if ":" in host else host
    headers = {"Host": f"{shown}:{port}", "User-Agent": "kube-probe/pykruise", "Accept": "*/*", "Connection": "close"}
    known = {name.lower(): name for name in headers}
    for header in action.http_headers:
        if "\n" not in header.name + header.value and "\r" not in header.name + header.value:
            headers[known.get(header.name.lower(), header.name)] = header.value
    connection = await Connection.open(host, port, _unverified() if scheme == "https" else None)
    try:
        head = await connection.send("GET", target, headers, None)
        body = b""
        with suppress(HttpError):
            async for piece in connection.pieces("GET", head):
                body += piece
                if len(body) >= MAX_OUTPUT:
                    break
        return head, body[:MAX_OUTPUT]
    finally:
        connection.close()


class Network:
    """How Pods are reached from the node. A simulation answers in its place."""

    async def connection(self, action: TcpSocketAction, pod_ip: str, seconds: float) -> Outcome:
        """A connection as a probe."""
        return await probe_connection(action, pod_ip, seconds)

    async def request(self, action: HttpGetAction, pod_ip: str, seconds: float) -> Outcome:
        """A request as a probe."""
        return await probe_request(action, pod_ip, seconds)

    async def hook(self, action: HttpGetAction, host: str, port: int) -> int:
        """A request as a hook: the status code. Raises ``OSError`` and ``HttpError``."""
        return (await _get(action, host, port))[0]


_context: ssl.SSLContext | None = None


def _unverified() -> ssl.SSLContext:
    """As the kubelet: a container's certificate is rarely one that anybody else trusts."""
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
    """KD-51, CRR-61: the preStop hook. Raises ``HookError`` or ``CriError``; whoever calls limits the time."""
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
            raise HookError("the address of the Pod is not known")
        try:
            status = await network.hook(hook.http_get, host, port_number(hook.http_get.port, ports))
        except (OSError, HttpError, LookupError) as error:
            raise HookError(_reason(error)) from error
        if not 200 <= status < 400:
            raise HookError(f"the request was answered with status code {status}")
    elif hook.sleep is not None:
        await clock.sleep(hook.sleep.seconds)
    else:
        raise HookError("invalid handler: it is neither exec nor httpGet nor sleep")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
