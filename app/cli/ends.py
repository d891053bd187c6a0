"""How a command ends: one style of message and four exit codes, whatever went wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from app.cli.printing import complain, write

#: As a shell says of a command that SIGINT ended.
INTERRUPTED = 130


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
        # Who read us has seen enough. What is left in the buffer would fail again at the end.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) else 0


def _sentence(error: Any) -> str:
    """What was wrong with the command line, and where it is explained."""
    from app.cli.verbs import instead

    message = error.format_message().strip()
    name = message.removeprefix("No such command '").partition("'")[0] if message.startswith("No such command") else ""
    if other := instead(name):
        return f"there is no command {name} here; it is: {other}"
    context = getattr(error, "ctx", None)
    where = f"; see {context.command_path} -h" if context is not None else ""
    return f"{message[:1].lower()}{message[1:].rstrip('.')}{where}"
