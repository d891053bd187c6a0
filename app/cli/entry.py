"""Where the command ``pykruise`` begins: what runs on every node is not made to import what people see."""

from __future__ import annotations

import gc
import os
import sys
from typing import Final

#: Importing makes much and nothing to collect; looking for it time and again was a tenth of a short command.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


def _open_what_is_closed() -> None:
    """A shell's ``>&-``: nothing of ours shall get the number of a standard stream, and nobody trip over it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, and those below are taken
            setattr(sys, name, os.fdopen(number, mode))


def main() -> None:
    """The entry point."""
    _open_what_is_closed()
    if sys.argv[1:2] == ["daemon"]:
        from app.daemon.main import main as run_daemon

        raise SystemExit(run_daemon(sys.argv[2:], os.environ))
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    from app.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
