"""Where the command ``pykruise`` begins: what runs on every node is not made to import what people see."""

from __future__ import annotations

import gc
import os
import sys
from typing import Final

#: Importing makes much and nothing to collect; looking for it time and again was a tenth of a short command.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


def main() -> None:
    """The entry point."""
    if sys.argv[1:2] == ["daemon"]:
        from app.daemon.main import main as run_daemon

        raise SystemExit(run_daemon(sys.argv[2:], os.environ))
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    from app.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
