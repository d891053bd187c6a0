"""Records the numbers and names of protobuf fields from the API's own ``generated.proto`` files.

    python -m tests.conformance.record_protobuf            # writes app/sandbox/apiserver/data/protobuf.json.gz
    python -m tests.conformance.record_protobuf --check

kubectl's typed clients send protobuf. The files come with the Go modules the test cluster is built from.
"""

import argparse
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conformance.record import DATA, GROUP_VERSIONS

VERSION = "v0.34.1"
_FIELD = re.compile(r"(optional|repeated)?\s*(map<\w+, *[.\w]+>|[.\w]+)\s+(\w+)\s*=\s*(\d+);")
_MAP = re.compile(r"map<\w+, *([.\w]+)>")
_SCALARS = frozenset({"bool", "bytes", "double", "int32", "int64", "string"})


def proto_files() -> list[Path]:
    """Return the files of the served groups and of their dependencies."""
    command = ["go", "env", "GOMODCACHE"]
    cache = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()) / "k8s.io"
    machinery, api = cache / f"apimachinery@{VERSION}" / "pkg", cache / f"api@{VERSION}"
    folders = [machinery / "apis/meta/v1", machinery / "api/resource", machinery / "runtime", machinery / "util/intstr"]
    for group_version in GROUP_VERSIONS:
        group, _, version = group_version.rpartition("/")
        folders.append(api / (group.partition(".")[0] or "core") / version)
    return [file for folder in folders if (file := folder / "generated.proto").exists()]


def messages(text: str) -> dict[str, dict[str, list[Any]]]:
    """Message name → field number → [name, type, cardinality]; cardinality is "" for one, "list" or "map"."""
    package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    if package is None:
        raise ValueError("a file without a package")
    found = {}
    for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", re.sub(r"//.*", "", text), re.MULTILINE | re.DOTALL):
        fields = {}
        for repeated, kind, field, number in _FIELD.findall(body):
            mapped = _MAP.fullmatch(kind)
            times = "map" if mapped else "list" if repeated == "repeated" else ""
            kind = mapped.group(1) if mapped else kind
            full = kind if kind in _SCALARS or kind.startswith(".") or "." in kind else f"{package.group(1)}.{kind}"
            fields[number] = [field, full.lstrip("."), times]
        found[f"{package.group(1)}.{name}"] = fields
    return found


def recorded() -> bytes:
    found: dict[str, Any] = {}
    for file in proto_files():
        found |= messages(file.read_text("utf-8"))
    return gzip.compress(json.dumps(found, sort_keys=True, separators=(",", ":")).encode(), mtime=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    path, content = DATA / "protobuf.json.gz", recorded()
    if not options.check:
        path.write_bytes(content)
        return 0
    same = path.exists() and gzip.decompress(path.read_bytes()) == gzip.decompress(content)
    if not same:
        sys.stderr.write(f"{path} is not what the API says: run python -m tests.conformance.record_protobuf\n")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
