"""Identities, their tokens and their kubeconfigs."""

import base64
import csv
import io
import json
import re
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Identity:
    """A user with a token: its name for role bindings, and its groups."""

    user: str
    groups: tuple[str, ...] = ()

    @classmethod
    def node(cls, name: str) -> "Identity":
        """Return the identity of the kubelet of the node `name`."""
        return cls(f"system:node:{name}", ("system:nodes",))


ADMIN = Identity("admin", ("system:masters",))
SCHEDULER = Identity("system:kube-scheduler")
PROXY = Identity("system:kube-proxy")


def new_tokens(identities: Iterable[Identity]) -> dict[str, str]:
    return {identity.user: secrets.token_hex(16) for identity in identities}


def write_token_file(path: Path, identities: Iterable[Identity], tokens: dict[str, str]) -> None:
    """Write the API server's `--token-auth-file`: token, user, uid, groups."""
    text = io.StringIO()
    csv.writer(text).writerows([tokens[who.user], who.user, who.user, ",".join(who.groups)] for who in identities)
    _write_private(path, text.getvalue())


def write_kubeconfig(path: Path, server: str, ca_file: Path, token: str) -> None:
    """Write a self-contained kubeconfig in JSON, which is valid YAML."""
    ca_data = base64.b64encode(ca_file.read_bytes()).decode()
    name = "pykruise-test"
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": ca_data}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    _write_private(path, json.dumps(config, indent=2))


def file_name(user: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", user)


def _write_private(path: Path, text: str) -> None:
    """Write a private file atomically."""
    new = path.with_name(f".{path.name}.{threading.get_native_id()}")
    new.touch(mode=0o600)
    new.write_text(text)
    new.rename(path)
