"""A release of the chart on a cluster, managed with helm and kubectl."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.helm import helm
from tests.cluster.recording import SERVICE_ACCOUNT
from tests.deploy.rendering import CHART
from tests.scenarios.world import Kubectl

NAME = "kruise"
NAMESPACE = "kruise-system"


class Release:
    """The release `kruise`, installed or not."""

    def __init__(self, kubectl: Kubectl, kubeconfig: Path) -> None:
        self.kubectl = kubectl
        self.kubeconfig = kubeconfig

    def helm(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        return helm(*arguments, kubeconfig=self.kubeconfig, check=check)

    def install(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run `helm install` with flags such as `--wait` and `--set=…`."""
        return self.helm("install", NAME, str(CHART), *arguments, check=check)

    def upgrade(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        return self.helm("upgrade", NAME, str(CHART), *arguments, check=check)

    def uninstall(self, *arguments: str) -> None:
        self.helm("uninstall", NAME, "--wait", *arguments)

    def objects(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return everything the release created, by kind and name."""
        manifest = self.helm("get", "manifest", NAME).stdout
        found = json.loads(self.kubectl("get", "-f", "-", "-o", "json", stdin=manifest).stdout)["items"]
        return {(one["kind"], one["metadata"]["name"]): one for one in found}

    def versions(self) -> dict[tuple[str, str], str]:
        """Return the resourceVersions of the release's objects, which change with every write."""
        return {key: one["metadata"]["resourceVersion"] for key, one in self.objects().items()}

    def get(self, *arguments: str) -> dict[str, Any]:
        """Run `kubectl get … -o json`."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)
        return found

    def apply(self, manifest: Mapping[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(dict(manifest)))

    def may(self, verb: str, resource: str, namespace: str = "", user: str = SERVICE_ACCOUNT) -> bool:
        """Return what the API server's authorizer answers to `kubectl auth can-i`, for example for ``pods
        --subresource=exec``."""
        where = ["-n", namespace] if namespace else ["--all-namespaces"]
        resource, *subresource = resource.split()
        where += subresource
        said = self.kubectl("auth", "can-i", verb, resource, *where, f"--as={user}", "--quiet", check=False)
        return said.returncode == 0
