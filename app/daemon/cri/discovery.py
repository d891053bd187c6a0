"""Finding the runtimes of the node (KD-10, KD-11)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from app.daemon.cri.client import GrpcRuntime
from app.daemon.cri.types import CriError

logger = logging.getLogger(__name__)

#: Where the host's /var/run is mounted.
MOUNTED: Final = Path("/hostvarrun")
#: Where the sockets are when the agent runs on the host itself.
ON_HOST: Final = (Path("/run"), Path("/var/run"))
CANDIDATES: Final = (
    "containerd.sock",
    "containerd/containerd.sock",
    "crio.sock",
    "crio/crio.sock",
    "cri-dockerd.sock",
    "cri-dockerd/cri-dockerd.sock",
)


class NoRuntime(CriError):
    """No runtime can be used; the text says what was tried."""


def sockets(socket_file: str, exists: Callable[[Path], bool], roots: Sequence[Path] | None = None) -> list[Path]:
    """The sockets to try, in order. ``socket_file``: this one only, below the mounted folder unless it is absolute.

    Without a mounted folder the host's own is looked at. One socket under two names is tried once.
    """
    if roots is None:
        roots = (MOUNTED,) if exists(MOUNTED) else ON_HOST
    if socket_file:
        given = Path(socket_file)
        wanted = (
            [given] if given.is_absolute() and exists(given) else [root / socket_file.lstrip("/") for root in roots]
        )
        return [path for path in wanted if exists(path)][:1]
    found: dict[str, Path] = {}
    for root in roots:
        for name in CANDIDATES:
            if exists(root / name):
                found.setdefault(name, root / name)
    return list(found.values())


async def connect(socket_file: str) -> list[GrpcRuntime]:
    """Every runtime that can be used, at least one. Raises :class:`NoRuntime`."""
    found = sockets(socket_file, Path.exists)
    if not found:
        where = f" {socket_file}" if socket_file else f"; looked for {', '.join(CANDIDATES)}"
        roots = MOUNTED if MOUNTED.exists() else " and ".join(map(str, ON_HOST))
        raise NoRuntime(f"not found container runtime sock{where} in {roots}; name it with --socket-file")
    runtimes, last = [], None
    for path in found:
        try:
            runtime = await GrpcRuntime.connect(str(path))
        except CriError as error:
            last = error
            logger.warning("container runtime %s cannot be used: %s", path, error)
            continue
        logger.info("container runtime %s: %s %s", path, runtime.name, runtime.version)
        runtimes.append(runtime)
    if not runtimes:
        raise NoRuntime(f"no container runtime of {', '.join(map(str, found))} can be used: {last}")
    return runtimes
