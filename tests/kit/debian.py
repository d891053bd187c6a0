"""Programs from Debian's packages: ``python -m tests.kit.debian chromium wrk`` installs the missing ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

#: Package → the names of its program in distributions.
PROGRAMS = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "wrk": ("wrk",)}


def program(package: str) -> str | None:
    """Return the path of the package's program, or None if it is not installed."""
    return next((found for name in PROGRAMS[package] if (found := shutil.which(name))), None)


def main() -> int:
    """Install the named packages if they are missing; return 1 unless run as root on Debian."""
    missing = [package for package in sys.argv[1:] if program(package) is None]
    if not missing:
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"missing: {', '.join(missing)}; install them, or run this as root on Debian", file=sys.stderr)
        return 1
    quiet = {"stdout": subprocess.DEVNULL, "check": True, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-q"], **quiet)
    subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing], **quiet)
    return 0


if __name__ == "__main__":
    sys.exit(main())
