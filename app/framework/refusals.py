"""``protection.log``: what was refused to whom, one line each, whoever refused it (DP-41, PUB-69)."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
from pathlib import Path
from typing import Final, TextIO

import orjson

from app.kube.text import quoted

logger = logging.getLogger(__name__)

LOG_NAME: Final = "protection.log"
#: Whoever retries a refused deletion for ever (a Namespace that is going, DP-43) must not fill the volume: a manager's
#: Pod that outgrows it is evicted.
MAX_BYTES: Final = 32 * 1024 * 1024


class ProtectionLog:
    """``protection.log``: one JSON line per refusal. MGR-126: where it cannot be written, lines go to ``stdout``.

    The file is opened for each line, so that it may be rotated, and so that several processes may share it. One of
    ``max_bytes`` is put aside as ``protection.log.1``, in place of the one before.
    """

    def __init__(self, folder: Path, stdout: TextIO | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / LOG_NAME
        self.older = folder / f"{LOG_NAME}.1"
        self._max_bytes = max_bytes
        self._stdout = stdout
        self._complained = False

    def check(self) -> None:
        """Warn now if the file cannot be written, rather than at the first refusal."""
        self._append(b"")

    def write(self, event: str, kind: str, namespace: str, name: str, username: str) -> None:
        """One refusal (DP-41: the key UserAgent holds the user). Whoever reaches the port can make names and users up:
        what is quoted of them is bounded, or few reviews would push older lines out of the file."""
        entry = {
            "Event": event,
            "Kind": kind,
            "Namespace": quoted(namespace),
            "Name": quoted(name),
            "UserAgent": quoted(username),
        }
        line = orjson.dumps(entry) + b"\n"
        if not self._append(line):
            stream = self._stdout if self._stdout is not None else sys.stdout
            stream.write(line.decode())
            stream.flush()

    def _append(self, line: bytes) -> bool:
        try:
            # Unbuffered: one write per line, which O_APPEND keeps whole.
            with self.path.open("ab", buffering=0) as file:
                file.write(line)
                if file.tell() >= self._max_bytes:
                    self._put_aside(file.fileno())
        except OSError as error:
            if not self._complained:
                self._complained = True
                logger.warning(
                    "--protection-log-path: %s cannot be written (%s): refusals are logged to standard output",
                    self.path,
                    error.strerror,
                )
            return False
        self._complained = False
        return True

    def _put_aside(self, file: int) -> None:
        """Rename the full file, unless another process did so meanwhile. Where it may not be, it grows on."""
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file), self.path.stat()):
                self.path.replace(self.older)
