"""Structured logs, as text or JSON lines, with little overhead per review.

A line is formatted at once but written in a batch: after a few milliseconds, or immediately for WARNING and above.
Values passed as ``extra`` become fields of the line.

Because any value may come from a tenant, each argument and field, and each line of a stack, is escaped and cut to 256
bytes here. Messages themselves are constants.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

import msgspec

from app.kube.text import one_line, quoted

_FLUSH_SECONDS: Final = 0.05
#: The maximum length of a message with its arguments.
_MESSAGE_BYTES: Final = 4096
#: Integers of at least this size are truncated like text.
_LARGE: Final = 1 << 63
_STACK_LINES: Final = 100
#: Attributes that every record has; all others come from ``extra``.
_STANDARD: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))


#: Flags of klog and of controller-runtime's zap logger that have no effect here, and whether each is a boolean.
FLAGS_WITHOUT_EFFECT: Final[Mapping[str, bool]] = {
    "add-dir-header": True,
    "alsologtostderr": True,
    "legacy-stderr-threshold-behavior": True,
    "log-backtrace-at": False,
    "log-dir": False,
    "log-file": False,
    "log-file-max-size": False,
    "log-flush-frequency": False,
    "log-json-info-buffer-size": False,
    "log-json-split-stream": True,
    "log-text-info-buffer-size": False,
    "log-text-split-stream": True,
    "logtostderr": True,
    "one-output": True,
    "skip-headers": True,
    "skip-log-headers": True,
    "stderrthreshold": False,
    "vmodule": False,
    "zap-devel": True,
    "zap-stacktrace-level": False,
    "zap-time-encoding": False,
}
#: Flags of the zap logger that have an equivalent here: the equivalent's name, and the values that differ.
_EQUIVALENTS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "zap-encoder": ("logging-format", {"console": "text"}),
    "zap-log-level": ("v", {"debug": "5", "info": "0", "error": "0", "panic": "0"}),
}


def own_flags(arguments: Sequence[str]) -> list[str]:
    """Return a command line with underscores in flags replaced with dashes, and zap flags with their equivalents.

    ``--log_dir=/x`` becomes ``--log-dir=/x``, ``--zap-encoder console`` becomes ``--logging-format=text``.
    """
    found: list[str] = []
    pending = list(reversed(arguments))
    while pending:
        argument = pending.pop()
        name, separator, value = argument.partition("=")
        if not name.startswith("-"):
            found.append(argument)
            continue
        name = name.replace("_", "-")
        equivalent = _EQUIVALENTS.get(name.lstrip("-"))
        if equivalent is None or not (separator or pending):
            found.append(f"{name}{separator}{value}")
            continue
        value = value if separator else pending.pop()
        found.append(f"--{equivalent[0]}={equivalent[1].get(value, value)}")
    return found


def level_for(verbosity: int) -> int:
    """Return the logging level for ``--v``: INFO below 5, otherwise DEBUG."""
    return logging.DEBUG if verbosity >= 5 else logging.INFO


def configure(style: str, level: int, stream: TextIO | None = None) -> None:
    """Send all logs to ``stream`` (default: standard error). ``style`` is text or json."""
    handler = LineHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    # Thread and process names are not used, and finding the caller costs more than writing the line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    for chatty in ("uvicorn", "uvicorn.error", "asyncio", "aiohttp"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


def fatal(message: str) -> None:
    """Log one line that says why the process exits, in the configured style if logging is configured."""
    if any(isinstance(handler, LineHandler) for handler in logging.getLogger().handlers):
        logging.getLogger("pykruise").critical(message)
    else:
        sys.stderr.write(f"pykruise: {one_line(message)}\n")


class LineHandler(logging.Handler):
    """Buffers formatted lines and writes them in batches."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: list[str] = []
        self._scheduled = False
        atexit.register(self.flush)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record))
        except Exception:  # noqa: BLE001 - a log line must not break the service
            self.handleError(record)
            return
        if record.levelno >= logging.WARNING:
            self.flush()
        elif not self._scheduled:
            try:
                asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
                self._scheduled = True
            except RuntimeError:  # no event loop: write immediately
                self.flush()

    def flush(self) -> None:
        self._scheduled = False
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # standard error is closed; nothing can be reported
            return


class _Clock:
    """Timestamps. The part up to the seconds is formatted only once per second."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, created: float) -> str:
        second = int(created)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{int((created - second) * 1000):03d}Z"


class TextFormatter(logging.Formatter):
    """``2026-01-02T03:04:05.678Z INFO app.module: message key=value``."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = _Clock()

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, followed by the stack if there is an exception."""
        line = f"{self._clock.text(record.created)} {record.levelname} {record.name}: {_message(record)}"
        fields = " ".join(f"{key}={_quoted(value)}" for key, value in _extra(record))
        if fields:
            line = f"{line} {fields}"
        return f"{line}\n{_stack(record)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, msg, the extra fields, and stack if there is an exception."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = _Clock()

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": self._clock.text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _message(record),
        }
        line.update((key, _argument(value)) for key, value in _extra(record))
        if record.exc_info:
            line["stack"] = _stack(record)
        return msgspec.json.encode(line).decode()


def _extra(record: logging.LogRecord) -> Iterable[tuple[str, Any]]:
    if len(record.__dict__) <= len(_STANDARD) - 3:  # most records have no extra fields
        return ()
    return [(key, value) for key, value in record.__dict__.items() if key not in _STANDARD]


def _stack(record: logging.LogRecord) -> str:
    """Return the stack. If it is long, keep only its beginning and its end, which names the error."""
    if not record.exc_info:
        return ""
    lines = [part for text in traceback.format_exception(*record.exc_info) for part in text.rstrip().split("\n")]
    if len(lines) > _STACK_LINES:
        half = _STACK_LINES // 2
        lines = [*lines[:half], f"… ({len(lines) - 2 * half} lines)", *lines[-half:]]
    return "\n".join(quoted(line) for line in lines)


def _message(record: logging.LogRecord) -> str:
    args = record.args
    if not args:
        text = str(record.msg)
    elif isinstance(args, Mapping):
        text = record.msg % {key: _argument(value) for key, value in args.items()}
    else:
        text = record.msg % tuple(_argument(value) for value in args)
    return quoted(text, _MESSAGE_BYTES)


def _argument(value: object) -> object:
    return value if isinstance(value, float) or (isinstance(value, int) and abs(value) < _LARGE) else quoted(value)


def _quoted(value: object) -> str:
    text = quoted(value)
    return f'"{text}"' if " " in text or not text else text
