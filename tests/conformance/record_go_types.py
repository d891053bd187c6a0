"""Records the Go structs of a Pod template, field by field, from the source of Kubernetes' API.

    python -m tests.conformance.record_go_types            # writes app/pods/pod_template_types.txt
    python -m tests.conformance.record_go_types --check

A hash that Kubernetes takes of a template goes by the names and types of all fields. The files come with the Go
modules the test cluster is built from.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

VERSION = "v0.34.1"
TYPES = Path(__file__).parents[2] / "app" / "pods" / "pod_template_types.txt"
#: Fields added after Kubernetes 1.32, whose types OpenKruise is built with, and their release. There are no other
#: differences.
NEWER = {
    "v1.Lifecycle.StopSignal": "1.33",
    "v1.Container.RestartPolicyRules": "1.34",
    "v1.EphemeralContainerCommon.RestartPolicyRules": "1.34",
    "v1.EnvVarSource.FileKeyRef": "1.34",
    "v1.PodSpec.HostnameOverride": "1.34",
    "v1.VolumeProjection.PodCertificate": "1.34",
}
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"^type (\w+) (string|map\[\w+\][\w.]+)$", re.MULTILINE)
_FIELD = re.compile(r'^\s+(?:(\w+) )?\s*([\w.*\[\]]+)\s+`.*?json:"([^",]*)[^`]*`', re.MULTILINE)
#: Types with their own String method: their fields are not those in JSON.
_BY_HAND = frozenset({"v1.Time", "v1.FieldsV1", "resource.Quantity", "intstr.IntOrString", "types.UID"})


class Source:
    """Both packages are called ``v1``; no name that is needed here is in both."""

    def __init__(self, modules: Path) -> None:
        self.structs: dict[str, list[tuple[str, str, str]]] = {}
        self.named: dict[str, str] = {}
        for path in (f"apimachinery@{VERSION}/pkg/apis/meta/v1/types.go", f"api@{VERSION}/core/v1/types.go"):
            text = (modules / path).read_text("utf-8")
            self.named |= dict(_NAMED.findall(text))
            for name, body in _STRUCT.findall(text):
                self.structs[name] = [
                    (go or type_.rpartition(".")[2], type_, json) for go, type_, json in _FIELD.findall(body)
                ]
        self.lines: list[str] = []
        self._seen: set[str] = set()

    def qualified(self, type_: str) -> str:
        """Return a type as Go prints it, and record its structure once."""
        for prefix in ("*", "[]"):
            if type_.startswith(prefix):
                return prefix + self.qualified(type_.removeprefix(prefix))
        if type_.startswith("map["):
            key, _, item = type_.removeprefix("map[").partition("]")
            return f"map[{self.qualified(key)}]{self.qualified(item)}"
        if type_ in ("string", "bool", "int32", "int64"):
            return type_
        package, _, name = type_.rpartition(".")
        full = type_ if package not in ("", "metav1") else f"v1.{name}"
        if full in self._seen or full in _BY_HAND:
            return full
        self._seen.add(full)
        if name in self.named:
            self.lines.append(f"{full} = {self.qualified(self.named[name])}")
        else:
            self._struct(full, self.structs[name])
        return full

    def _struct(self, full: str, fields: list[tuple[str, str, str]]) -> None:
        lines = [full]
        for go, type_, json in fields:
            since = NEWER.get(f"{full}.{go}", "")
            lines.append(f"  {go} {self.qualified(type_)} {json or '-'} {since}".rstrip())
        self.lines += lines


def recorded() -> str:
    """Return the content of the file: structs with their fields (name, type, name in JSON, the release if newer)."""
    command = ["go", "env", "GOMODCACHE"]
    cache = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    source = Source(Path(cache) / "k8s.io")
    source.qualified("PodTemplateSpec")
    return "\n".join(source.lines) + "\n"


def main() -> int:
    """Write the file, or check that it is up to date."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true")
    if not arguments.parse_args().check:
        TYPES.write_text(recorded(), "utf-8")
        return 0
    return int(TYPES.read_text("utf-8") != recorded())


if __name__ == "__main__":
    sys.exit(main())
