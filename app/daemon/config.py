"""How the agent reaches the API server: by its Pod's service account, or by a kubeconfig.

What an agent meets on a node is a token or a certificate. For kubeconfigs with plugins the whole loader is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from app.kube.config import ClusterConfig, load_config
from app.kube.plainconfig import in_cluster, read_kubeconfig


async def cluster_config(kubeconfig: str, environ: Mapping[str, str]) -> ClusterConfig:
    """KD-2: ``--kubeconfig``, or what every controller looks for. Raises ``ConfigError``."""
    path = kubeconfig or environ.get("KUBECONFIG", "")
    if not path and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    if path and os.pathsep not in path and (found := read_kubeconfig(Path(path))) is not None:
        return found
    return await load_config(kubeconfig, environ=environ)
