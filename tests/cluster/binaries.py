"""The Kubernetes commands: found in `$KUBEBUILDER_ASSETS`, or built from the pinned Go module and cached.

The module (go.mod, tools.go, go.sum in this folder) pins every source by checksum, so the cache is keyed by go.sum.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.paths import SOURCE, cache_dir, locked

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KUBELET = "kubelet"
PROXY = "kube-proxy"
KUBECTL = "kubectl"

# The API server first: the others share nearly all of its packages.
_PACKAGES = {
    API_SERVER: "k8s.io/kubernetes/cmd/kube-apiserver",
    KUBECTL: "k8s.io/kubernetes/cmd/kubectl",
    CONTROLLER_MANAGER: "k8s.io/kubernetes/cmd/kube-controller-manager",
    SCHEDULER: "k8s.io/kubernetes/cmd/kube-scheduler",
    KUBELET: "k8s.io/kubernetes/cmd/kubelet",
    PROXY: "k8s.io/kubernetes/cmd/kube-proxy",
    ETCD: "go.etcd.io/etcd/server/v3",
}


def kubernetes_version() -> str:
    """The version that is built, such as `v1.34.1`: the one go.mod requires."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{SOURCE / 'go.mod'} does not require k8s.io/kubernetes")
    return found.group(1)


def built_dir() -> Path:
    """The cache folder for the commands built from the present go.sum."""
    return module_dir("cluster", SOURCE)


def module_dir(name: str, module: Path) -> Path:
    """The cache folder for what is built from the Go module in the folder `module`: another go.sum, another folder."""
    digest = hashlib.sha256((module / "go.sum").read_bytes()).hexdigest()
    return cache_dir() / f"{name}-{digest[:16]}"


def find(name: str) -> Path | None:
    """The command `name`: from `$KUBEBUILDER_ASSETS` where it is there, else the one built; None without either."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [Path(assets)] if assets else []
    for folder in [*folders, built_dir()]:
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


def ensure(*names: str) -> dict[str, Path]:
    """The paths of the commands `names`, after building what is missing (minutes, once per machine)."""
    if any(find(name) is None for name in names):
        build()
    return {name: found for name in names if (found := find(name)) is not None}


def build() -> Path:
    """Build every command unless that has been done, and return their folder. Safe to call from two processes."""
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = "k8s.io/component-base/version"
    values = {f"{stamp}.gitVersion": version, f"{stamp}.gitMajor": major, f"{stamp}.gitMinor": minor}
    return build_module("cluster", SOURCE, _PACKAGES, values)


def build_module(name: str, module: Path, packages: Mapping[str, str], values: Mapping[str, str]) -> Path:
    """Build the commands `packages` (name: package) of the Go module in the folder `module`, unless that has been done.

    `values`: strings that the linker puts into the programs, by variable. Returns the folder with the commands.
    """
    target = module_dir(name, module)
    with locked(target.with_name(f"{target.name}.lock")):
        if not target.is_dir():
            _build_into(target, _go(), module, packages, values)
    return target


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        raise ClusterError(
            "no Go compiler found, and the Kubernetes commands for the test cluster are built from source: install "
            "Go 1.24 or newer (Debian: apt-get install golang; or https://go.dev/dl), or point $KUBEBUILDER_ASSETS "
            f"at a folder with {', '.join(_PACKAGES)}"
        )
    return go


def _build_into(target: Path, go: str, module: Path, packages: Mapping[str, str], values: Mapping[str, str]) -> None:
    flags = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in values.items())])
    # A folder with all commands appears under its name only by the last rename; what was cut short is thrown away here.
    unfinished = target.with_name(f"{target.name}.building")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name, package in packages.items():
        began = time.monotonic()
        print(f"building {name} ({package})", file=sys.stderr, flush=True)
        options = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", flags]
        command = ["nice", "-n", "10", go, "build", *options, "-o", str(unfinished / name), package]
        environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
        if subprocess.run(command, cwd=module, env=environment, stdin=subprocess.DEVNULL, check=False).returncode:
            raise ClusterError(f"{' '.join(command)} failed in {module}; the compiler's words are above")
        print(f"built {name} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    unfinished.rename(target)
