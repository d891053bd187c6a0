"""``pykruise review``: shows what admission would change."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.terminal import Context, Gates, Kubeconfig, complain, failed, with_cluster, write

if TYPE_CHECKING:
    from app.cli.standalone_review import Verdict


def review(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="AdmissionReview or manifests, YAML or JSON; a directory of them; - for standard input"
        ),
    ],
    policies: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Directory (or file) with SidecarSets and Namespaces")
    ] = None,
    of_cluster: Annotated[bool, typer.Option("--cluster", help="Use the cluster's objects instead")] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of manifests without one")
    ] = "default",
    output: Annotated[Literal["diff", "json"], typer.Option("--output", "-o", help="A diff, or the response")] = "diff",
    feature_gates: Gates = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what admission would change, and by which rule.

    Reviews are decided locally, without a manager. For a workload, a Pod from its template is reviewed too. Exit
    code 1: denied; 2: the file or the policies are invalid.
    """
    from rich.console import Console

    from app.cli.review_text import show
    from app.cli.standalone_review import ReviewError, kept, review_file
    from app.framework.policies import PolicyError
    from app.manager.gates import FeatureGateError, parse_gates
    from app.manager.manifests import ManifestError

    if policies is not None and of_cluster:
        raise failed("specify one of --policies and --cluster", 2)
    if policies is not None and not policies.exists():
        raise failed(f"--policies: {policies} does not exist", 2)
    try:
        with TemporaryDirectory(prefix="pykruise-review-") as folder:
            if of_cluster:
                policies = with_cluster(kubeconfig, context, "", lambda client, _: kept(client, Path(folder)))
            verdicts = review_file(file, policies, namespace, parse_gates(feature_gates))
    except ReviewError as error:
        for reason in error.args:
            complain(reason)
        raise typer.Exit(2) from None
    except (ManifestError, FeatureGateError, PolicyError) as error:
        raise failed(str(error), 2) from None
    console = Console(highlight=False)
    for verdict in verdicts:
        if output == "json":
            write(as_json(verdict))
        else:
            show(verdict, console)
    raise typer.Exit(1 if any(verdict.refusal for verdict in verdicts) else 0)


def as_json(verdict: Verdict) -> str:
    """Return the response to the API server as JSON."""
    from app.admission.review import answer
    from app.kube.admission import Allowed, Patched

    changed = Patched(verdict.operations) if verdict.operations else Allowed()
    return answer(verdict.review.uid, verdict.refusal or changed).decode()
