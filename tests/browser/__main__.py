"""``python -m tests.browser``: install the browser for these tests if it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

#: The names of Chromium in distributions.
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def main() -> int:
    """Install Chromium from Debian's packages if it is missing; return 1 if that fails."""
    if program() is not None:
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print("tests/browser need Chromium: install it, or run this as root on Debian", file=sys.stderr)
        return 1
    quiet = {"stdout": subprocess.DEVNULL, "check": True, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-q"], **quiet)
    subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"], **quiet)
    return 0


if __name__ == "__main__":
    sys.exit(main())
