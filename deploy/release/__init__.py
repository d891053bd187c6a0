"""Build a release from a commit: ``python -m deploy.release`` writes ``dist/``. Needs Debian 12, Python 3.11 and Go.

Builds of the same commit have the same checksums as long as Debian serves the same packages: archives are sorted, owned
by root, and dated with the commit.
"""
