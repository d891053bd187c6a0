"""Where the command ``pykruise`` begins: what runs on every node is not made to import what people see."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The entry point."""
    if sys.argv[1:2] == ["daemon"]:
        from app.daemon.main import main as run_daemon

        raise SystemExit(run_daemon(sys.argv[2:], os.environ))
    from app.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
