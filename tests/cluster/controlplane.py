"""A private control plane: etcd, kube-apiserver, kube-controller-manager and, optionally, kube-scheduler.

    with ControlPlane() as control_plane:
        control_plane.kubectl("get", "namespaces")

It needs no root, and any number of control planes can run side by side.
"""

import contextlib
import itertools
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.cluster import binaries, credentials, network
from tests.cluster.credentials import ADMIN, Identity
from tests.cluster.errors import ClusterError
from tests.cluster.process import end, wait_until
from tests.cluster.run import Run

LOOPBACK = "127.0.0.1"
#: Below the ports of clients and NodePorts. Each process of a test run uses different ports.
_PORTS = range(15_000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8, 30_000, 8)
#: Ports are handed out in turn, because one that was just handed out may not be in use yet.
_offered = itertools.cycle(random.sample(_PORTS, len(_PORTS)))


def wait_until_established(kubectl: Callable[..., "subprocess.CompletedProcess[str]"], *definitions: str) -> None:
    """Wait until CRDs are served. ``definitions``: arguments of kubectl that select them."""
    # A new CRD has no conditions, which `kubectl wait` treats as an error.
    command = ("wait", "--for=condition=Established", "--timeout=30s", *definitions)
    wait_until(lambda: not kubectl(*command, check=False).returncode, f"{definitions} are established")


def wait_for_service_account(kubectl: Callable[..., "subprocess.CompletedProcess[str]"], namespace: str) -> None:
    """Wait until a namespace has its default ServiceAccount, which every Pod needs."""
    command = ("wait", "--for=create", "-n", namespace, "serviceaccount/default", "--timeout=30s")
    wait_until(lambda: not kubectl(*command, check=False).returncode, f"Pods can be created in namespace {namespace}")


class ControlPlane:
    """A private control plane. A context manager; also usable with `start()` and `stop()`.

    `identities`: users besides the administrator, each with a token. `api_server_args`, `controller_manager_args`: more
    flags, such as `--feature-gates=…`. `audit_policy`: the rules of an audit.k8s.io/v1 Policy; the audit log is then
    written to `audit_log`.
    """

    def __init__(
        self,
        *,
        identities: Sequence[Identity] = (),
        api_server_args: Sequence[str] = (),
        controller_manager_args: Sequence[str] = (),
        audit_policy: Mapping[str, Any] | None = None,
        controller_manager: bool = True,
        scheduler: bool = False,
        address: str = LOOPBACK,
        run: Run | None = None,
    ) -> None:
        self._identities = list(dict.fromkeys([ADMIN, credentials.SCHEDULER, *identities]))
        self._api_server_args = api_server_args
        self._controller_manager_args = controller_manager_args
        self._audit_policy = audit_policy
        self._controller_manager = controller_manager
        self._scheduler = scheduler
        self._address = address
        self._run = run
        self._etcd: list[str | Path] = []
        self._api_server: list[str | Path] = []

    @classmethod
    def of_run(cls, run: Run) -> Self:
        found = cls(run=run)
        found._controller_manager = "kube-controller-manager" in run.processes
        return found

    # Set by start().

    @property
    def run(self) -> Run:
        if self._run is None:
            raise ClusterError("the control plane has not been started: use it as a context manager, or call start()")
        return self._run

    @property
    def directory(self) -> Path:
        """Return the folder of this run, which contains logs/."""
        return self.run.directory

    @property
    def server(self) -> str:
        return str(self.run.facts["server"])

    @property
    def ca_file(self) -> Path:
        """Return the file with the CA of the API server's certificate."""
        return self.directory / "apiserver" / "apiserver.crt"

    @property
    def token(self) -> str:
        return str(self.run.facts["tokens"][ADMIN.user])

    @property
    def kubeconfig(self) -> Path:
        return self.kubeconfig_for(ADMIN)

    @property
    def audit_log(self) -> Path:
        """Return the audit log, one JSON object per line. It exists if there is an audit policy."""
        return self.directory / "audit.log"

    def kubeconfig_for(self, identity: Identity) -> Path:
        """Return a kubeconfig with the token of an identity."""
        return self._kubeconfig_file(identity.user, self.run.facts["tokens"][identity.user])

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig with a token that the API server issues for an existing ServiceAccount."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        status, answer = self.request("POST", path, request)
        if status != 201:
            raise ClusterError(f"no token for ServiceAccount {namespace}/{name}: {answer}")
        return self._kubeconfig_file(f"serviceaccount.{namespace}.{name}", answer["status"]["token"])

    def _kubeconfig_file(self, user: str, token: str) -> Path:
        folder = self.directory / "kubeconfigs"
        folder.mkdir(exist_ok=True)
        path = folder / credentials.file_name(user)
        credentials.write_kubeconfig(path, self.server, self.ca_file, token)
        return path

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        accept: str = "application/json",
    ) -> tuple[int, Any]:
        """Send a request as the administrator, or with another ``token`` ("" for none), and return the
        status and the response. A patch is a merge patch."""
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": content, "Accept": accept}
        if token := self.token if token is None else token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        # Ignore proxies in the environment, because the API server is on this machine.
        tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(self.ca_file)))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), tls)
        try:
            with opener.open(request, timeout=120) as answer:
                return answer.status, decoded(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, decoded(error.read())

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl as the administrator; with `check`, a failure raises an error with kubectl's output."""
        kubectl = binaries.ensure(binaries.KUBECTL)[binaries.KUBECTL]
        environment = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
        }
        done = subprocess.run(
            [str(kubectl), *arguments], input=stdin, capture_output=True, text=True, env=environment, check=False
        )
        if check and done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed ({done.returncode}): {done.stderr.strip()}")
        return done

    # ---- starting and stopping

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until Pods can be created in the namespace `default`."""
        binaries.ensure(*self._commands())
        self._run = Run.create(None, detached=False)
        try:
            self.launch()
            self.wait_until_ready()
            self.run.complete()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything and remove the run's folder."""
        run, self._run = self.run, None
        run.destroy()

    def launch(self) -> None:
        """Start etcd and the API server without waiting for them."""
        commands = binaries.ensure(*self._commands())
        tokens = credentials.new_tokens(self._identities)
        api_port, client_port, peer_port = free_port(self._address), free_port(LOOPBACK), free_port(LOOPBACK)
        self.run.facts.update({"server": f"https://{self._address}:{api_port}", "tokens": tokens})
        credentials.write_token_file(self.directory / "tokens.csv", self._identities, tokens)
        client_url, peer_url = f"http://{LOOPBACK}:{client_port}", f"http://{LOOPBACK}:{peer_port}"
        self._etcd = [
            commands[binaries.ETCD],
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--unsafe-no-fsync",  # the data need not survive a crash
            "--log-level=warn",
        ]
        self.run.start(binaries.ETCD, self._etcd)
        flags = [*self._api_server_flags(client_url, api_port), *self._api_server_args]
        self._api_server = [commands[binaries.API_SERVER], *flags]
        self.run.start(binaries.API_SERVER, self._api_server)

    def restart_api_server(self) -> None:
        """Kill the API server and start it again with the same flags, without waiting for it."""
        end(self.run.processes[binaries.API_SERVER])
        self.run.start(binaries.API_SERVER, self._api_server)

    def save_storage(self, folder: Path) -> None:
        """Copy etcd's data to a new folder, as a backup. Restarts etcd and the API server, without waiting."""
        with self._stopped_storage() as data:
            shutil.copytree(data, folder)

    def restore_storage(self, folder: Path) -> None:
        """Replace etcd's data with a saved copy. Restarts etcd and the API server, without waiting."""
        with self._stopped_storage() as data:
            shutil.rmtree(data)
            shutil.copytree(folder, data)

    @contextmanager
    def _stopped_storage(self) -> Iterator[Path]:
        for name in (binaries.API_SERVER, binaries.ETCD):
            end(self.run.processes[name])
        yield self.directory / "etcd"
        self.run.start(binaries.ETCD, self._etcd)
        self.run.start(binaries.API_SERVER, self._api_server)

    def restart_controller_manager(self) -> None:
        """Restart the controller manager. It discovers kinds to collect at startup, and then only every 30 seconds."""
        end(self.run.processes[binaries.CONTROLLER_MANAGER])
        self._start_controller_manager()

    def _start_controller_manager(self) -> None:
        command = binaries.ensure(*self._commands())[binaries.CONTROLLER_MANAGER]
        flags = [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self._service_account_key()}",
            f"--root-ca-file={self.ca_file}",
            "--leader-elect=false",
            "--secure-port=0",
            *self._controller_manager_args,
        ]
        self.run.start(binaries.CONTROLLER_MANAGER, [command, *flags])

    def wait_until_ready(self) -> None:
        """Wait for the API server, start its clients, and wait for what every Pod needs."""
        watched = self.run.watched(binaries.ETCD, binaries.API_SERVER)
        wait_until(self.is_ready, "the API server is ready", alive=watched)
        commands = binaries.ensure(*self._commands())
        if self._controller_manager:
            self._start_controller_manager()
        if self._scheduler:
            flags = [f"--kubeconfig={self.kubeconfig_for(credentials.SCHEDULER)}", "--leader-elect=false"]
            self.run.start(binaries.SCHEDULER, [commands[binaries.SCHEDULER], *flags, "--secure-port=0"])
        if self._controller_manager:
            watched |= self.run.watched(binaries.CONTROLLER_MANAGER)
            # No Pod is admitted without it.
            wait_until(self._has_default_service_account, "the default service account exists", alive=watched)

    def is_ready(self) -> bool:
        """Return whether the API server reports ready."""
        try:
            return self.has_certificate() and self.request("GET", "/readyz")[0] == 200
        except OSError:  # it is not listening yet
            return False

    def has_certificate(self) -> bool:
        """Return whether the API server has created its certificate; it writes the key last."""
        return self.ca_file.with_suffix(".key").exists()

    def _has_default_service_account(self) -> bool:
        return self.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200

    def _commands(self) -> list[str]:
        wanted = {binaries.CONTROLLER_MANAGER: self._controller_manager, binaries.SCHEDULER: self._scheduler}
        return [binaries.ETCD, binaries.API_SERVER, *(name for name, want in wanted.items() if want)]

    def _api_server_flags(self, etcd: str, port: int) -> list[str]:
        key = self._service_account_key()
        flags = [
            f"--etcd-servers={etcd}",
            f"--bind-address={self._address}",
            f"--secure-port={port}",
            f"--cert-dir={self.ca_file.parent}",  # it creates its own certificate there
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--anonymous-auth=false",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            "--runtime-config=api/all=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-cluster-ip-range={network.SERVICE_RANGE}",
        ]
        if self._address == LOOPBACK:
            # The endpoints of the Service `kubernetes` may not be loopback addresses.
            flags.append("--endpoint-reconciler-type=none")
        if self._audit_policy is not None:
            policy = self.directory / "audit-policy.json"
            policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **self._audit_policy}))
            flags += [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]
        return flags

    def _service_account_key(self) -> Path:
        path = self.directory / "service-account.key"
        if not path.exists():
            pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
            key = ec.generate_private_key(ec.SECP256R1())
            path.touch(mode=0o600)
            path.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
        return path


def free_port(address: str) -> int:
    """Return a free TCP port of `address`, outside the kernel's range of ports for clients.

    Otherwise a client that reconnects while the listener restarts could be given the listener's own port and keep it.
    """
    for _ in _PORTS:
        port = next(_offered)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind((address, port))
            return port
    raise ClusterError(f"no port from {_PORTS[0]} to {_PORTS[-1]} of {address} is free")


def decoded(body: bytes) -> Any:
    """Return the JSON in `body`, or its text (health checks answer in plain text)."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
