"""Helm, built from its own Go module (helm/go.mod) and cached like the other commands."""

import os
import re
import subprocess
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.errors import ClusterError
from tests.cluster.paths import SOURCE

_MODULE = SOURCE / "helm"
_PACKAGE = "helm.sh/helm/v3/cmd/helm"


def ensure() -> Path:
    """Return the path of `helm`, after building it if missing (a minute, once per machine)."""
    found = re.search(r"^require helm\.sh/helm/v3 (v\S+)", (_MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{_MODULE / 'go.mod'} does not require helm.sh/helm/v3")
    major, minor = binaries.pinned_version().removeprefix("v").split(".")[:2]
    values = {"helm.sh/helm/v3/internal/version.version": found.group(1)}
    # `helm template` and `helm lint` assume this Kubernetes version.
    for package in ("helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"):
        values |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    return binaries.build_module("helm", _MODULE, {"helm": _PACKAGE}, values) / "helm"


def helm(*arguments: str, kubeconfig: Path | None = None, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run helm, without a cluster if `kubeconfig` is None. With `check`, a failure raises an error with helm's message.

    The user's configuration, cache and plugins are neither read nor written.
    """
    home = binaries.module_dir("helm", _MODULE) / "home"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
    environment |= {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    environment["KUBECONFIG"] = str(kubeconfig or home / "no-cluster")
    done = subprocess.run(
        [str(ensure()), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        raise ClusterError(f"helm {' '.join(arguments)} failed ({done.returncode}): {done.stderr.strip()}")
    return done
