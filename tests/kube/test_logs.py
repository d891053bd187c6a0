"""Log lines: one per record, as text or JSON, with fields."""

import ast
import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import app
from app.kube import logs
from app.kube.text import quoted

LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
LOGGERS = ("logger", "log", "self._logger", "self._log", "logging")


@pytest.fixture
def lines() -> Iterator[Callable[[str], io.StringIO]]:
    """Redirect all logs to a buffer in this format."""
    before = logging._srcfile

    def start(style: str) -> io.StringIO:
        stream = io.StringIO()
        logs.configure(style, logging.DEBUG, stream)
        return stream

    yield start
    logging._srcfile = before
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = True
    logging.captureWarnings(capture=False)


def test_text_lines_have_time_level_logger_message_and_fields(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("text")
    logging.getLogger("app.x").info("did %s", "it", extra={"webhook": "mpod.kb.io", "note": "two words"})
    line = stream.getvalue()
    assert line.endswith(' INFO app.x: did it webhook=mpod.kb.io note="two words"\n')
    assert line[:4].isdigit()
    assert line[10] == "T"
    assert line[23] == "Z"


def test_json_lines_have_the_same_fields(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("json")
    logging.getLogger("app.x").warning("did \ud800 %s", "it", extra={"code": 7, "user": "jane"})
    line = json.loads(stream.getvalue())
    assert line.pop("ts").endswith("Z")
    assert line == {"level": "warning", "logger": "app.x", "msg": "did \\ud800 it", "code": 7, "user": "jane"}


@pytest.mark.parametrize("style", [logs.TextFormatter(), logs.JsonFormatter()])
def test_each_line_has_the_time_of_its_event(style: logging.Formatter) -> None:
    times = {0.0: "1970-01-01T00:00:00.000Z", 0.5: "1970-01-01T00:00:00.500Z", 86_399.0: "1970-01-01T23:59:59.000Z"}
    for created, text in times.items():
        record = logging.makeLogRecord({"msg": "m", "created": created})
        assert text in style.format(record)


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_exception_keeps_its_stack(lines: Callable[[str], io.StringIO], style: str) -> None:
    stream = lines(style)
    try:
        raise ValueError("oops\n" * 300)
    except ValueError:
        logging.getLogger("app.x").exception("failed")
    assert "ValueError: oops" in stream.getvalue()
    assert stream.getvalue().count("oops") < 110
    assert "test_logs.py" in stream.getvalue()


def test_a_message_stays_on_one_line(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("text")
    logging.getLogger("app.x").error("got %s", "a\nb\x1b[31m")
    assert stream.getvalue().count("\n") == 1
    assert "got a\\nb\\x1b[31m" in stream.getvalue()


async def test_information_is_buffered_and_warnings_are_flushed(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("text")
    for message in ("soon", "soon after"):
        logging.getLogger("app.x").info(message)
        assert message not in stream.getvalue()
        async with asyncio.timeout(120):
            while message not in stream.getvalue():
                await asyncio.sleep(0.005)
    assert stream.getvalue().count("\n") == 2
    logging.getLogger("app.x").info("before")
    logging.getLogger("app.x").warning("now")
    assert stream.getvalue().index("before") < stream.getvalue().index("now")


def test_a_closed_stream_does_no_harm(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("text")
    stream.close()
    logging.getLogger("app.x").warning("nobody hears")
    logging.getLogger("app.x").warning("%d of %d", 1)  # nor does a mistake in a call


def test_a_fatal_error_is_logged_on_one_line(
    lines: Callable[[str], io.StringIO], capsys: pytest.CaptureFixture[str]
) -> None:
    logs.fatal("port in\nuse")
    assert capsys.readouterr().err == "pykruise: port in\\nuse\n"
    stream = lines("json")
    logs.fatal("port in use")
    assert json.loads(stream.getvalue())["msg"] == "port in use"


def test_verbosity_five_shows_every_decision() -> None:
    assert logs.level_for(0) == logging.INFO
    assert logs.level_for(4) == logging.INFO
    assert logs.level_for(5) == logging.DEBUG


HOSTILE = "\x1b[2J\n\r\x00\ud800\u202e" + "a" * 2_500_000


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_line_quotes_little_and_escapes_control_characters(lines: Callable[[str], io.StringIO], style: str) -> None:
    stream = lines(style)
    log = logging.getLogger("app.x")
    log.info("said %s of %s and %d", HOSTILE, ValueError(HOSTILE), 3, extra={"user": HOSTILE})
    log.info("said %(what)s", {"what": HOSTILE})
    log.info("said %s", int("9" * 4000) ** 2)
    try:
        raise KeyError(HOSTILE)
    except KeyError:
        log.exception("failed on %r", HOSTILE)
    text = stream.getvalue()
    assert len(text) < 6 * 1024
    assert f"({len(HOSTILE)} characters)" in text
    assert text.count("\n") == len(text.splitlines())
    assert all(character.isprintable() for line in text.split("\n") for character in line)


@pytest.mark.parametrize("text", ["", "plain", "a" * 256, "ü" * 128])
def test_short_text_is_quoted_as_it_is(text: str) -> None:
    assert quoted(text) == text


@pytest.mark.parametrize("text", ["a" * 257, "ü" * 129, "\x00" * 100, "\U0001f600" * 65, "\ud800" * 300])
def test_long_text_is_cut_at_whole_characters(text: str) -> None:
    head, _, rest = quoted(text).partition("…")
    assert len(head.encode()) <= 256
    assert rest == f" ({len(text)} characters)"


def test_messages_of_log_lines_are_constants() -> None:
    """Variable parts must be arguments, because only arguments are shortened."""
    wrong = []
    for path in sorted(Path(app.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            level, first = node.func.attr, 1 if node.func.attr == "log" else 0
            if level not in LEVELS or ast.unparse(node.func.value) not in LOGGERS or len(node.args) <= first:
                continue
            if not isinstance(node.args[first], ast.Constant):
                wrong.append(f"{path}:{node.lineno}")
    assert not wrong
