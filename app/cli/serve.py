"""``pykruise serve``: serves admission reviews without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.terminal import Gates, failed
from app.kube import logs


def serve(
    policies: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Directory (or file) with SidecarSets and Namespaces as YAML")
    ],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port to listen on")] = 9443,
    workers: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Number of worker processes")] = 1,
    certs: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Directory for the certificates, which are created if missing")
    ] = Path("certs"),
    feature_gates: Gates = "",
    verbosity: Annotated[
        int, typer.Option("--verbosity", "-v", metavar="N", help="Log verbosity; 5 shows every decision")
    ] = 0,
    logging_format: Annotated[Literal["text", "json"], typer.Option()] = "text",
) -> None:
    """Serve admission reviews without a cluster.

    SidecarSets and Namespaces are read from YAML files.
    """
    from app.certs.issue import CertificateError
    from app.cli.standalone_server import ServeOptions, run
    from app.framework.policies import PolicyError
    from app.manager.gates import FeatureGateError, parse_gates
    from app.manager.serving import StartError

    logs.configure(logging_format, logs.level_for(verbosity))
    if not policies.exists():
        raise failed(f"--policies: {policies} does not exist", 2)
    try:
        code = run(ServeOptions(policies, host, port, workers, certs, parse_gates(feature_gates)))
    except FeatureGateError as error:
        raise failed(str(error), 2) from None
    except (StartError, CertificateError, PolicyError) as error:
        raise failed(str(error)) from None
    raise typer.Exit(code)
