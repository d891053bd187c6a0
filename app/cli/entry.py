"""Entry point of ``pykruise``. The node agent starts here without importing the interactive commands."""

from __future__ import annotations

import gc
import os
import sys
from typing import Final

#: Imports allocate many objects but leave no garbage; garbage collection took a tenth of a short command's time.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


def _open_what_is_closed() -> None:
    """Open closed standard streams (``>&-``), so that no other file gets their descriptors."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # gets ``number``, the lowest free descriptor
            setattr(sys, name, os.fdopen(number, mode))


def main() -> None:
    """Run the command."""
    _open_what_is_closed()
    if sys.argv[1:2] == ["daemon"]:
        from app.daemon.main import main as run_daemon

        raise SystemExit(run_daemon(sys.argv[2:], os.environ))
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    from app.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
