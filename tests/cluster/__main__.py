"""The command line of the test cluster: `python -m tests.cluster up`, `down`, `build` and so on."""

import argparse
import os
import sys
from collections.abc import Sequence

from tests.cluster import binaries, helm, ourimage, packages
from tests.cluster.cluster import Cluster, take_down
from tests.cluster.errors import ClusterError


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start the cluster; it stays until `down`")
    up.add_argument("--nodes", type=int, default=3, help="number of nodes with real containers (default: 3)")
    up.add_argument(
        "--no-nodes", dest="nodes", action="store_const", const=0, help="start only the control plane; needs no root"
    )
    up.add_argument(
        "--api-server-arg", action="append", default=[], metavar="FLAG", help="one more kube-apiserver flag"
    )
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="end the cluster and undo everything it did to the machine")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="show the processes and the paths of their logs")
    status.set_defaults(run=_status)
    kubeconfig = commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    kubeconfig.set_defaults(run=_kubeconfig)
    build = commands.add_parser("build", help="build and fetch what is missing, and print where it is")
    build.add_argument("--no-nodes", action="store_true", help="only what the control plane needs")
    build.set_defaults(run=_build)
    image = commands.add_parser("image", help="add images to the registry, such as web:1.0")
    image.add_argument("names", nargs="+", metavar="NAME")
    image.set_defaults(run=_image)
    our_image = commands.add_parser("our-image", help="build the manager's image and add it under these names")
    our_image.add_argument("names", nargs="+", metavar="NAME")
    our_image.set_defaults(run=_our_image)
    enter = commands.add_parser("enter", help="run a command on a node: enter node-0 ps")
    enter.add_argument("node")
    enter.add_argument("command", nargs=argparse.REMAINDER)
    enter.set_defaults(run=_enter)
    return parser


def _up(options: argparse.Namespace) -> int:
    cluster = Cluster.running()
    if cluster is None:
        cluster = Cluster(nodes=options.nodes, api_server_args=options.api_server_arg, detached=True)
        cluster.start()
    elif len(cluster.nodes) != options.nodes:
        raise ClusterError(f"a cluster with {len(cluster.nodes)} nodes is up; first: python -m tests.cluster down")
    print(f"server:     {cluster.control_plane.server}")
    print(f"nodes:      {', '.join(node.name for node in cluster.nodes) or 'none'}")
    if cluster.nodes:
        print(f"registry:   http://{cluster.registry.address}")
    print(f"kubectl:    {binaries.ensure(binaries.KUBECTL)[binaries.KUBECTL]}")
    print(f"kubeconfig: {cluster.kubeconfig}")
    print(f"logs:       {cluster.run.directory / 'logs'}")
    print(f"\nexport KUBECONFIG={cluster.kubeconfig}")
    return 0


def _down(_: argparse.Namespace) -> int:
    left = take_down()
    if left:
        raise ClusterError("still on the machine: " + "; ".join(left))
    print("nothing is left")
    return 0


def _status(_: argparse.Namespace) -> int:
    cluster = Cluster.running()
    if cluster is None:
        print("no cluster is up")
        return 1
    run = cluster.run
    for name, identity in run.processes.items():
        print(f"{name:26} {'runs' if identity.is_alive() else 'ENDED':6} pid {identity.pid:<8} {run.log(name)}")
    print(f"{'API server':26} {'ready' if cluster.control_plane.is_ready() else 'NOT READY'}")
    return 0


def _kubeconfig(_: argparse.Namespace) -> int:
    print(_running().kubeconfig)
    return 0


def _build(options: argparse.Namespace) -> int:
    print(binaries.build(binaries.CONTROL_PLANE) if options.no_nodes else binaries.build())
    print(helm.ensure().parent)
    if not options.no_nodes:
        packages.ensure()
        print(packages.program(packages.CONTAINERD).parent)
        print(ourimage.build())
    return 0


def _image(options: argparse.Namespace) -> int:
    _running().registry.add(*options.names)
    return 0


def _our_image(options: argparse.Namespace) -> int:
    registry = _running().registry
    layout = ourimage.build()
    for name in options.names:
        registry.add_layout(name, layout)
    return 0


def _enter(options: argparse.Namespace) -> int:
    nodes = {node.name: node for node in _running().nodes}
    if options.node not in nodes:
        raise ClusterError(f"no node {options.node!r}; there are: {', '.join(nodes) or 'none'}")
    command = nodes[options.node].enter_command(*(options.command or ["sh"]))
    os.execvpe(command[0], command, os.environ | {"PATH": packages.search_path()})


def _running() -> Cluster:
    cluster = Cluster.running()
    if cluster is None:
        raise ClusterError("no cluster is up; start one with: python -m tests.cluster up")
    return cluster


if __name__ == "__main__":
    sys.exit(main())
