"""The machine's side of the nodes' network: an address, a cable and routes per node, and forwarding.

Each node has its own network namespace (nodes.py) and one address, at the end of a cable (a veth pair) to the machine,
which routes between the nodes. The machine uses no bridge, because kernels that filter bridged packets cannot send a
translated packet back through the port it came from, and a Pod must reach its own Service. The API server listens on
the machine's address, so that kubelets and Pods reach it. Nothing is reachable from outside the machine, and Pods
cannot reach the outside.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.process import wait_until

_INTERFACE = "pkr0"
HOST_ADDRESS = "10.230.0.1"
SERVICE_RANGE = "10.231.0.0/16"
KUBERNETES_SERVICE = "10.231.0.1"
MAX_NODES = 200
_OURS = "10.230.0.0/15"
_CHAIN = "PYKRUISE-FORWARD"
_CHAIN_PREFIXES = ("KUBE-", "PYKRUISE-")
_IPTABLES = ("iptables", "ip6tables")

# Kernel settings of kubelet, kube-proxy and this module.
_SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


@dataclass(frozen=True, slots=True)
class Before:
    """The machine's state before the run: kernel settings, and existing chains (`command table chain`)."""

    sysctls: dict[str, str]
    chains: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def node_address(index: int) -> str:
    return f"10.230.0.{10 + index}"


def pod_range(index: int) -> str:
    return f"10.230.{1 + index}.0/24"


def link_name(node: str) -> str:
    """Return the name of the machine's end of the cable to `node` (at most 15 characters)."""
    return f"pkr-{node}"[:15]


def observe() -> Before:
    """Return the state that `tear_down` must restore. Raises an error if the machine uses our names or addresses."""
    taken = _ip("-4", "route", "show", "root", _OURS).strip()
    if Path("/sys/class/net", _INTERFACE).exists() or taken:
        raise ClusterError(
            f"the interface {_INTERFACE} or addresses in {_OURS} are in use here ({taken or 'interface exists'}), and "
            "the test cluster needs them; if another user's test cluster has them, it must be taken down first"
        )
    sysctls = {name: path.read_text().strip() for name in _SYSCTLS if (path := Path("/proc/sys", name)).exists()}
    return Before(sysctls, sorted(_chains()))


def set_up() -> None:
    """Give the machine its address and forward the nodes' traffic."""
    _ip("link", "add", _INTERFACE, "type", "bridge")  # it has no ports and only holds the address
    _ip("address", "add", f"{HOST_ADDRESS}/32", "dev", _INTERFACE)
    _ip("link", "set", _INTERFACE, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # Accept our own traffic even if the machine drops forwarded traffic by default, as with Docker.
    _run("iptables", "--wait", "--new-chain", _CHAIN)
    _run("iptables", "--wait", "--append", _CHAIN, "--in-interface", "pkr+", "--jump", "ACCEPT")
    _run("iptables", "--wait", "--append", _CHAIN, "--out-interface", "pkr+", "--jump", "ACCEPT")
    _run("iptables", "--wait", "--insert", "FORWARD", "--jump", _CHAIN)


def add_node(node: str, index: int, pid: int) -> None:
    """Connect the cable to the node whose first process is `pid`; the node's end is `eth0`."""
    link = link_name(node)
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    # Each cable also has the machine's address, the source of connections that kube-proxy masquerades.
    _ip("address", "add", HOST_ADDRESS, "peer", node_address(index), "dev", link)
    _ip("link", "set", link, "up")
    _ip("route", "add", pod_range(index), "via", node_address(index))


def tear_down(before: Before) -> None:
    """Remove what `set_up`, `add_node` and kube-proxy created; the nodes and kube-proxy must have ended."""
    # The cables are removed with the nodes' namespaces, which can outlive their last process by a minute, until open
    # connections time out.
    for link in _links():
        with suppress(ClusterError):  # it has disappeared meanwhile
            _ip("link", "delete", link)
    wait_until(lambda: not _links(), "the nodes' network interfaces are gone", deadline=15)
    for command in _IPTABLES:
        if changes := "".join(_removal(command, before)):
            _run(f"{command}-restore", "--wait", "--noflush", stdin=changes)
    for name, value in before.sysctls.items():
        path = Path("/proc/sys", name)
        if path.read_text().strip() != value:
            path.write_text(value)


def left_over(before: Before) -> list[str]:
    """Return what is left of the network: interfaces, chains and kernel settings."""
    found = [f"interface {link}" for link in _links()]
    found += [f"chain {chain}" for chain in sorted(_chains() - set(before.chains))]
    now = {name: Path("/proc/sys", name).read_text().strip() for name in before.sysctls}
    return found + [f"{name} is {now[name]}, was {was}" for name, was in before.sysctls.items() if now[name] != was]


def _links() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").glob("pkr*"))


def _chains() -> set[str]:
    """Return the chains with names like ours or kube-proxy's, as `command table chain`."""
    return {
        f"{command} {table} {line[1:].split()[0]}"
        for command in _IPTABLES
        for table, line in _saved(command)
        if line.startswith(tuple(f":{prefix}" for prefix in _CHAIN_PREFIXES))
    }


def _removal(command: str, before: Before) -> Iterator[str]:
    """Return lines for `iptables-restore` that remove our chains and every rule elsewhere that jumps to one."""
    ours: dict[str, list[str]] = {}
    for known in sorted(_chains() - set(before.chains)):
        owner, table, chain = known.split()
        if owner == command:
            ours.setdefault(table, []).append(chain)
    saved = _saved(command)
    for table, chains in ours.items():
        yield f"*{table}\n"
        yield from (f":{chain} - [0:0]\n" for chain in chains)  # flushes the chain
        for line_table, line in saved:
            words = line.split()
            if line_table == table and words[0] == "-A" and words[1] not in chains and set(words) & set(chains):
                yield f"-D{line.removeprefix('-A')}\n"
        yield from (f"-X {chain}\n" for chain in chains)
        yield "COMMIT\n"


def _saved(command: str) -> list[tuple[str, str]]:
    """Return the rules of `command` as (table, line)."""
    if shutil.which(f"{command}-save") is None:
        return []
    found, table = [], ""
    for line in _run(f"{command}-save").splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith((":", "-")):
            found.append((table, line))
    return found


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
