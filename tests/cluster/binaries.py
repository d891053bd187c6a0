"""The Kubernetes commands, from `$KUBEBUILDER_ASSETS` or built from the pinned Go module and cached.

The module (go.mod, tools.go, go.sum in this folder) pins every source by checksum, so the cache is keyed by go.sum.
`$KUBERNETES` selects another version of the Kubernetes servers, such as `1.30.14`. They are built with Kubernetes' own
go.mod and go.sum, verified with Go's checksum database, and cached by version. etcd and kubectl always come from the
pinned module.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
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

# The API server comes first, because the others share nearly all of its packages.
_PACKAGES = {
    API_SERVER: "k8s.io/kubernetes/cmd/kube-apiserver",
    KUBECTL: "k8s.io/kubernetes/cmd/kubectl",
    CONTROLLER_MANAGER: "k8s.io/kubernetes/cmd/kube-controller-manager",
    SCHEDULER: "k8s.io/kubernetes/cmd/kube-scheduler",
    KUBELET: "k8s.io/kubernetes/cmd/kubelet",
    PROXY: "k8s.io/kubernetes/cmd/kube-proxy",
    ETCD: "go.etcd.io/etcd/server/v3",
}
CONTROL_PLANE = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL)
_ALWAYS_PINNED = (ETCD, KUBECTL)
# Flags for other versions: the checksums of their modules are added to go.sum, and the cloud providers of Kubernetes
# before 1.31 are left out, because they take longer to build than everything else.
_RELEASED = ("-mod=mod", "-tags=providerless")


def pinned_version() -> str:
    """Return the version that go.mod requires, such as `v1.34.1`."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{SOURCE / 'go.mod'} does not require k8s.io/kubernetes")
    return found.group(1)


def kubernetes_version() -> str:
    """Return the version to build: that of `$KUBERNETES`, or the pinned one."""
    named = os.environ.get("KUBERNETES")
    if not named:
        return pinned_version()
    if re.fullmatch(r"v?1\.\d+\.\d+", named) is None:
        raise ClusterError(f"KUBERNETES={named} is not a version; give major, minor and patch: KUBERNETES=1.30.14")
    return f"v{named.removeprefix('v')}"


def minor_version() -> int:
    return int(kubernetes_version().split(".")[1])


def built_dir(name: str = API_SERVER) -> Path:
    """Return the folder of the command `name` in the cache, for the pinned module or the selected version."""
    version = kubernetes_version()
    if name in _ALWAYS_PINNED or version == pinned_version():
        return module_dir("cluster", SOURCE)
    return cache_dir() / f"kubernetes-{version}"


def module_dir(name: str, module: Path) -> Path:
    """Return the cache folder of builds of the Go module in `module`, which depends on its go.sum."""
    digest = hashlib.sha256((module / "go.sum").read_bytes()).hexdigest()
    return cache_dir() / f"{name}-{digest[:16]}"


def find(name: str) -> Path | None:
    """Return the command `name`: that in `$KUBEBUILDER_ASSETS`, else the one built, else None.

    The commands in `$KUBEBUILDER_ASSETS` may have another version, so they are ignored if a version is selected.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS") if not os.environ.get("KUBERNETES") else None
    folders = [Path(assets)] if assets else []
    for folder in [*folders, built_dir(name)]:
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


def ensure(*names: str) -> dict[str, Path]:
    """Return the paths of the commands `names`, after building missing ones (minutes, once per machine)."""
    if missing := [name for name in names if find(name) is None]:
        build(missing)
    return {name: found for name in names if (found := find(name)) is not None}


def build(names: Collection[str] = tuple(_PACKAGES)) -> Path:
    """Build these commands if missing, and return the folder of the API server. Safe to call from two processes."""
    pinned, version = pinned_version(), kubernetes_version()
    of_pinned = {name for name in names if version == pinned or name in _ALWAYS_PINNED}
    if of_pinned:
        _build(module_dir("cluster", SOURCE), SOURCE, _packages(of_pinned), _stamped(pinned))
    if others := set(names) - of_pinned:
        with tempfile.TemporaryDirectory(prefix="pykruise-kubernetes-") as module:
            _write_module(Path(module), version)
            _build(built_dir(), Path(module), _packages(others), _stamped(version), _RELEASED)
    return built_dir()


def _packages(names: Collection[str]) -> dict[str, str]:
    return {name: package for name, package in _PACKAGES.items() if name in names}


def _stamped(version: str) -> dict[str, str]:
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    # Old API servers report the second at /version.
    stamped = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{package}.{name}": value for package in stamped for name, value in values.items()}


def _write_module(module: Path, version: str) -> None:
    """Write the go.mod and go.sum that build a released version: its own files, with the published versions of the
    staging modules in its repository."""
    command = [_go(), "mod", "download", "-json", f"k8s.io/kubernetes@{version}"]
    done = subprocess.run(command, cwd=module, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    if "Dir" not in found:
        raise ClusterError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    own = Path(found["GoMod"]).read_text().replace("module k8s.io/kubernetes\n", "module pykruise.test/kubernetes\n")
    published = version.replace("v1.", "v0.", 1)
    own = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 {published}", own)
    (module / "go.mod").write_text(f"{own}\nrequire k8s.io/kubernetes {version}\n")
    (module / "go.sum").write_bytes((Path(found["Dir"]) / "go.sum").read_bytes())


def build_module(name: str, module: Path, packages: Mapping[str, str], values: Mapping[str, str]) -> Path:
    """Build the commands `packages` (name: package) of the Go module in the folder `module`, unless they are cached.

    `values`: strings that the linker puts into the programs, by variable. Returns the folder with the commands.
    """
    return _build(module_dir(name, module), module, packages, values)


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        raise ClusterError(
            "no Go compiler found, and the Kubernetes commands for the test cluster are built from source: install "
            "Go 1.24 or newer (Debian: apt-get install golang; or https://go.dev/dl), or point $KUBEBUILDER_ASSETS "
            f"at a folder with {', '.join(_PACKAGES)}"
        )
    return go


def _build(
    target: Path,
    module: Path,
    packages: Mapping[str, str],
    values: Mapping[str, str],
    more: Sequence[str] = ("-mod=readonly",),
) -> Path:
    flags = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in values.items())])
    with locked(target.with_name(f"{target.name}.lock")):
        for name, package in packages.items():
            if (target / name).exists():
                continue
            began = time.monotonic()
            print(f"building {name} ({package})", file=sys.stderr, flush=True)
            # A rename publishes a command, so no partial file is seen.
            unfinished = target.with_name(f"{target.name}.building")
            options = ["-trimpath", "-buildvcs=false", *more, "-ldflags", flags]
            command = ["nice", "-n", "10", _go(), "build", *options, "-o", str(unfinished), package]
            environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
            if subprocess.run(command, cwd=module, env=environment, stdin=subprocess.DEVNULL, check=False).returncode:
                raise ClusterError(f"{' '.join(command)} failed in {module}; see the compiler's output above")
            target.mkdir(exist_ok=True)
            unfinished.rename(target / name)
            print(f"built {name} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return target
