"""``python -m tests.advisories``: whether a locked dependency has a known vulnerability.

``OSV_DATABASE`` names a copy of the OSV database: a folder or zip of its PyPI records. Nothing is downloaded. Without a
copy the check reports "not checked" and fails, unless ``ADVISORIES_UNCHECKED=allow``.
"""

import json
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
#: Advisory → why it does not affect us.
ACCEPTED: Mapping[str, str] = {}
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def locked(text: str) -> dict[str, str]:
    """Return the versions in a lock file by name."""
    return {canonicalize_name(name): version for name, version in _PINNED.findall(text)}


def records(database: Path) -> Iterator[dict[str, Any]]:
    if database.is_dir():
        for path in sorted(database.rglob("*.json")):
            yield json.loads(path.read_text("utf-8"))
        return
    with zipfile.ZipFile(database) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def found(packages: Mapping[str, str], advisories: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = []
    for advisory in advisories:
        if advisory.get("withdrawn") or advisory["id"] in ACCEPTED:
            continue
        for affected in advisory.get("affected", ()):
            package = affected.get("package", {})
            name = canonicalize_name(package.get("name", ""))
            if package.get("ecosystem") == "PyPI" and name in packages and _is_affected(packages[name], affected):
                lines.append(f"{name} {packages[name]}: {advisory['id']} {advisory.get('summary', '')}".rstrip())
    return sorted(set(lines))


def _is_affected(version: str, affected: Mapping[str, Any]) -> bool:
    ranges = [one for one in affected.get("ranges", ()) if one.get("type") == "ECOSYSTEM"]
    return version in affected.get("versions", ()) or any(_is_within(version, one["events"]) for one in ranges)


def _is_within(version: str, events: Iterable[Mapping[str, str]]) -> bool:
    """OSV's rule: the last event at or before the version decides."""
    inside = False
    for event in sorted(events, key=lambda event: _order(next(iter(event.values())))):
        ((kind, bound),) = event.items()
        if kind == "introduced" and _order(bound) <= _order(version):
            inside = True
        elif (kind == "fixed" and _order(bound) <= _order(version)) or (
            kind == "last_affected" and _order(bound) < _order(version)
        ):
            inside = False
    return inside


def _order(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")


def main() -> int:
    """Return 1 if a locked version has a known vulnerability or if nothing could be checked."""
    named = os.environ.get("OSV_DATABASE", "")
    if not named:
        allowed = os.environ.get("ADVISORIES_UNCHECKED") == "allow"
        print(
            "advisories: not checked: set OSV_DATABASE to a copy of the OSV database (PyPI/all.zip)"
            + ("" if allowed else ", or ADVISORIES_UNCHECKED=allow to pass without one")
        )
        return 0 if allowed else 1
    known = list(records(Path(named))) if Path(named).exists() else []
    if not known:
        print(f"advisories: not checked: OSV_DATABASE={named} holds no advisories")
        return 1
    packages: dict[str, str] = {}
    for name in LOCKS:
        packages |= locked((ROOT / name).read_text("utf-8"))
    lines = found(packages, known)
    print(
        "\n".join(lines)
        or f"advisories: {len(packages)} packages checked against {len(known)} advisories, none affected"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
