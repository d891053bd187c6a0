"""How a command ends: one style of message and four exit codes, whatever went wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from app.cli.printing import complain, write

#: As a shell says of a command that SIGINT ended.
INTERRUPTED = 130
#: What pydantic says of a value, and what we say.
_PLAINER: Final = (
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "it is no whole number"),
    ("Input should be greater than or equal to", "it is less than"),
    ("Input should be less than or equal to", "it is more than"),
)
#: Options that kubectl takes before its command as well.
_BEHIND: Final = ("-n", "--namespace", "--kubeconfig", "--context", "-A", "--all-namespaces", "-o", "--output")


def run(command: Callable[[], Any]) -> int:
    """Run a command of the command line; its exit code."""
    from typer.exceptions import Abort, TyperException

    try:
        result = command()
        sys.stdout.flush()
    except TyperException as error:
        if "NoArgsIsHelp" in type(error).__name__:
            write(error.format_message())  # a command with nothing behind it asks what there is
            return 0
        complain(_sentence(error))
        return 2
    except (KeyboardInterrupt, Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Who read us has seen enough.
        _write_no_more()
        return 1
    except OSError as error:
        _write_no_more()
        where = f"{error.filename}: " if error.filename is not None else ""
        complain(f"{where}{error.strerror or error}")
        return 1
    return result if isinstance(result, int) else 0


def _write_no_more() -> None:
    """What is left in the buffer would fail again at the end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: Any) -> str:
    """What was wrong with the command line, and where it is explained."""
    from app.cli.verbs import instead

    message = " ".join(error.format_message().split())
    for words, plain in _PLAINER:
        message = message.replace(words, plain)
    name = message.removeprefix("No such command '").partition("'")[0] if message.startswith("No such command") else ""
    if other := instead(name):
        return f"there is no command {name} here; it is: {other}"
    context = getattr(error, "ctx", None)
    said = f"{message[:1].lower()}{message[1:].rstrip('.')}"
    if context is None:
        return said
    where = f"see {context.command_path} -h"
    if context.parent is None and message.removeprefix("No such option: ").startswith(_BEHIND):
        return f"{said} here; it stands behind the command, {where}"
    return f"{said}; {where}"
