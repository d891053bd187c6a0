"""The chart as Helm renders it, without a cluster."""

from pathlib import Path
from typing import Any

import yaml

from tests.cluster.errors import ClusterError
from tests.cluster.helm import helm

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"


def render(
    *settings: str,
    values: dict[str, Any] | None = None,
    tmp_path: Path | None = None,
    kubernetes: str = "",
    chart: Path = CHART,
) -> list[dict[str, Any]]:
    """Return an installation's objects. `settings`: for `--set`; `values`: as in a file; `kubernetes`: a version."""
    arguments = [part for setting in settings for part in ("--set", setting)]
    if kubernetes:
        arguments += ["--kube-version", kubernetes]
    if values is not None:
        assert tmp_path is not None
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        arguments += ["--values", str(path)]
    text = helm("template", "kruise", str(chart), *arguments).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def refusal(*settings: str, kubernetes: str = "") -> str:
    try:
        render(*settings, kubernetes=kubernetes)
    except ClusterError as error:
        return str(error)
    raise AssertionError(f"{settings} {kubernetes} were accepted")


def find(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the only object of this kind and name."""
    (found,) = (one for one in documents if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found
