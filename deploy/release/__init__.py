"""Build a release from a commit: ``python -m deploy.release`` writes ``dist/``. Needs Debian 12, Python 3.11 and Go.

The same commit gives the same checksums, as long as Debian serves the same packages: archives are sorted, belong to
root and carry the date of the commit.
"""
