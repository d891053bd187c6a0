"""Serve HTTPS: sockets, accepting connections, and the server itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn

from app.kube.concurrency import cancel
from app.manager.limits import Connections, KnownCallers, Limits, plain_address, within_descriptors
from app.manager.protocol import BoundedProtocol

# Accept connections. Those in the TLS handshake count toward the port's limit. When file descriptors run out, the
# listener stays open; an event loop's own server would close it.

logger = logging.getLogger(__name__)

#: Connections to accept before other tasks run.
AT_ONCE: Final = 32
#: Seconds to pause accepting when the system is out of resources.
BACK_OFF_SECONDS: Final = 0.2
HANDSHAKE_SECONDS: Final = 10.0
SHUTDOWN_SECONDS: Final = 2.0
#: CPU seconds of a TLS handshake, mostly for the signature.
HANDSHAKE_COST: Final = 0.001
#: Errors caused by the system, not by the caller; they may be temporary.
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts connections on one listening socket until closed. Other processes may share the socket."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        connections: Connections,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._protocol = protocol
        self._tls = tls
        self._connections = connections
        #: Task of each connection in the handshake, oldest first → whether the connection is from a stranger.
        self._opening: dict[asyncio.Task[None], bool] = {}
        self._again: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)

    async def wait_closed(self) -> None:
        await cancel(*self._opening)

    def _listen(self) -> None:
        self._again = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._back_off(error)
                    return
                continue  # the caller has disconnected
            caller = plain_address(address[0])
            stranger = self._connections.is_stranger(caller)
            if self._has_room(stranger):
                connection.setblocking(False)
                self._open(connection, caller if stranger and self._tls is not None else "")
            else:
                connection.close()

    def _back_off(self, error: OSError) -> None:
        """Pause accepting. The listener stays readable, so the loop would otherwise spin."""
        self._loop.remove_reader(self._listener)
        self._again = self._loop.call_later(BACK_OFF_SECONDS, self._listen)
        self._connections.refuse(errno.errorcode.get(error.errno or 0, "OSError"))
        # Closing a connection frees a descriptor.
        self._connections.make_room(self._loop.time())

    def _has_room(self, stranger: bool) -> bool:
        limit = self._connections.limits.connections
        if len(self._connections.open) + len(self._opening) < limit:
            return True
        if len(self._opening) > limit // 2:
            self._connections.refuse("handshakes")
            task = next((task for task, strange in self._opening.items() if strange), next(iter(self._opening)))
            del self._opening[task]
            task.cancel()
            return True
        return self._connections.make_room(self._loop.time(), stranger=stranger)

    def _open(self, connection: socket.socket, stranger: str) -> None:
        """Open a connection; ``stranger`` is the address of a stranger, or empty for a known caller."""
        task = self._loop.create_task(self._handshake(connection, stranger))
        self._opening[task] = bool(stranger)
        task.add_done_callback(lambda task: self._opening.pop(task, None))

    async def _handshake(self, connection: socket.socket, stranger: str) -> None:
        try:
            if stranger:
                await self._connections.turns.wait(stranger, seconds=HANDSHAKE_COST)
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = {} if self._tls is None else {"ssl_handshake_timeout": HANDSHAKE_SECONDS}
            if self._tls is not None:
                times["ssl_shutdown_timeout"] = SHUTDOWN_SECONDS
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls, **times)
        except (OSError, TimeoutError) as error:  # includes ssl.SSLError
            self._connections.refuse("handshake")
            logger.debug("cannot establish a connection: %s", error)
            connection.close()
        except BaseException:
            connection.close()
            raise


BACKLOG: Final = 2048
#: Seconds that a busy event loop has to read requests that have already arrived.
_ARRIVED_SECONDS: Final = 0.05


class StartError(Exception):
    """The process cannot start. The message is one line that names the flag or file and the fix."""


def bind(host: str, port: int, flag: str) -> socket.socket:
    """Return a socket listening on ``host`` (empty: all interfaces) and ``port`` (0: any). Raises StartError."""
    family = _family(host)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise StartError(_cannot_bind(host, port, flag, error)) from None
    listener.setblocking(False)
    listener.set_inheritable(True)
    return listener


def bind_address(address: str, flag: str) -> socket.socket | None:
    """Bind an address flag, ``HOST:PORT`` or ``:PORT``. Returns None if the flag disables the listener."""
    if address in ("", "0"):
        return None
    host, _, port = address.rpartition(":")
    return bind(host.strip("[]"), int(port), flag)


def read_client_ca(path: str, flag: str) -> bytes:
    """Return the certificates in a file, or empty bytes for an empty path. Raises StartError."""
    if not path:
        return b""
    try:
        found = Path(path).read_bytes()
        ssl.create_default_context(cadata=found.decode("ascii"))
    except OSError as error:
        raise StartError(f"{flag}: {path}: {error.strerror}") from None
    except (ssl.SSLError, ValueError):
        raise StartError(f"{flag}: {path}: contains no PEM certificates") from None
    return found


def client_names(client_ca: bytes, names: str) -> frozenset[str] | None:
    """Return ``client_names`` for :class:`Limits`. Without a client CA it is None: no certificates are required."""
    return frozenset(filter(None, map(str.strip, names.split(",")))) if client_ca else None


def _family(host: str) -> socket.AddressFamily:
    if not host:
        return socket.AF_INET6 if _has_ipv6() else socket.AF_INET
    with contextlib.suppress(ValueError):
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    return socket.AF_INET


def _has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _cannot_bind(host: str, port: int, flag: str, error: OSError | OverflowError) -> str:
    where = f"{host or 'all interfaces'}, port {port}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{flag}: {where} is in use by another program: choose another port or stop that program"
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return f"{flag}: {where} may not be used: ports below 1024 need privileges"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{flag}: cannot listen on {where}: {reason}"


class Server(uvicorn.Server):
    """A uvicorn server that limits its callers and has no signal handling or periodic wakeups. ``stop`` shuts it down.

    ``port`` is its name in logs and metrics. Strangers do not delay known callers (``callers``).
    """

    def __init__(
        self,
        app: Any,
        *,
        tls: ssl.SSLContext | None = None,
        grace_seconds: float = 10.0,
        limits: Limits | None = None,
        port: str = "webhook",
        callers: KnownCallers | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, int(grace_seconds)),
                backlog=BACKLOG,
            )
        )
        self.connections = Connections(port, within_descriptors(limits or Limits()), callers)
        self._tls = tls
        self._stopped = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on sockets that are already listening."""
        loop = asyncio.get_running_loop()

        def connection() -> BoundedProtocol:
            return BoundedProtocol(self.config, self.server_state, loop, self.connections)

        self.servers = [Acceptor(listener, connection, self._tls, self.connections) for listener in sockets or ()]  # type: ignore[misc]
        self.started = True

    def stop(self) -> None:
        """Stop accepting connections, finish requests in flight, and return from ``serve``."""
        self.should_exit = True
        self._stopped.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests that have arrived: closing a connection with an unread request would lose the request."""
        await asyncio.sleep(_ARRIVED_SECONDS)
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        await self._stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the process handles signals."""
        yield
