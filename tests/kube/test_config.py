"""Loading configurations from files, environment, exec plugins and the Pod's service account."""

import base64
import json
import os
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.kube.config import in_cluster, load_config, load_kubeconfig, read_kubeconfig
from app.kube.errors import ConfigError
from tests.kit import objects
from tests.kit.certificates import self_signed


def kubeconfig(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, name: str = "config") -> str:
    """Write a kubeconfig with another context, ``there``."""
    content = objects.kubeconfig("http://127.0.0.1:1/", **user)
    content["clusters"][0]["cluster"] |= cluster or {}
    content["clusters"].append({"name": "d", "cluster": {"server": "http://127.0.0.1:2"}})
    content["contexts"].append({"name": "there", "context": {"cluster": "d", "user": "u", "namespace": "shop"}})
    path = folder / name
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def test_the_token_of_the_current_context_is_used(tmp_path):
    path = kubeconfig(tmp_path, {"token": "abc"})
    config = await load_kubeconfig(path)
    assert (config.host, config.source) == ("http://127.0.0.1:1", f"kubeconfig {path}")
    assert await config.authorization() == "Bearer abc"
    assert config.ssl_context is None
    assert config.namespace == ""


async def test_another_context_can_be_selected_by_name(tmp_path):
    config = await load_kubeconfig(kubeconfig(tmp_path, {"username": "a", "password": "b"}), "there")
    assert config.host == "http://127.0.0.1:2"
    assert config.namespace == "shop"
    assert await config.authorization() == "Basic " + base64.b64encode(b"a:b").decode()


async def test_client_certificates_and_authorities_make_the_tls_context(tmp_path):
    data = base64.b64encode(b"".join(self_signed())).decode()
    user = {"client-certificate-data": data, "client-key-data": data}
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": data, "tls-server-name": "kubernetes"}
    config = await load_kubeconfig(kubeconfig(tmp_path, user, cluster))
    assert config.ssl_context is not None
    assert config.ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert config.ssl_context.cert_store_stats()["x509"] == 1
    assert config.server_name == "kubernetes"
    assert await config.authorization() is None


async def test_verification_is_skipped_only_on_request(tmp_path):
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    config = await load_kubeconfig(kubeconfig(tmp_path, {"token": "a"}, cluster))
    assert config.ssl_context is not None
    assert config.ssl_context.verify_mode is ssl.CERT_NONE


def plugin(folder: Path, status: str, then: str = "") -> dict[str, Any]:
    """Return a user whose exec plugin counts its runs and prints this status, a Python expression with ``n``."""
    script = folder / "plugin.py"
    runs = folder / "runs"
    script.write_text(
        "import json, pathlib, sys, datetime\n"
        f"runs = pathlib.Path({str(runs)!r}); n = int(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text(str(n))\n"
        f"{then}\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        f" 'status': {status}}}))\n"
    )
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(script)],
            "interactiveMode": "Never",
        }
    }


async def test_an_exec_plugin_runs_again_before_its_token_expires_and_after_a_refusal(tmp_path):
    soon = (datetime.now(UTC) + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    expiry = f"{{'expirationTimestamp': '{soon}'}} if n == 1 else {{}}"
    user = plugin(tmp_path, f"{{'token': f't{{n}}', **({expiry})}}")
    config = await load_kubeconfig(kubeconfig(tmp_path, user))
    assert await config.authorization() == "Bearer t2"  # t1 has less than a minute to live
    assert await config.authorization() == "Bearer t2"
    await config.renew()
    assert await config.authorization() == "Bearer t3"


@pytest.mark.parametrize("user", [{"token": "a"}, {"username": "a", "password": "b"}], ids=["plain", "package"])
async def test_the_proxy_of_the_environment_is_used_unless_it_excludes_the_server(tmp_path, monkeypatch, user):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    path = kubeconfig(tmp_path, user)
    assert (await load_kubeconfig(path)).proxy == "http://proxy:3128"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert (await load_kubeconfig(path)).proxy is None


async def test_a_proxy_of_the_cluster_wins(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    path = kubeconfig(tmp_path, {"token": "a"}, {"proxy-url": "http://own:3128"})
    assert (await load_kubeconfig(path)).proxy == "http://own:3128"


async def test_several_files_are_merged_and_missing_ones_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr("app.kube.config.EXPIRY_SKEW", timedelta(0))
    (tmp_path / "token").write_text("first")
    users = kubeconfig(tmp_path, {"tokenFile": str(tmp_path / "token")}, name="users")
    paths = os.pathsep.join((str(tmp_path / "none"), users, kubeconfig(tmp_path, {"token": "unused"})))
    config = await load_kubeconfig(paths, "there")
    assert (config.host, config.namespace) == ("http://127.0.0.1:2", "shop")
    assert await config.authorization() == "Bearer first"
    (tmp_path / "token").write_text("second")
    assert await config.authorization() == "Bearer second"


async def test_certificates_may_be_files_next_to_the_kubeconfig(tmp_path):
    (tmp_path / "a.pem").write_bytes(b"".join(self_signed()))
    user = {"client-certificate": "a.pem", "client-key": "a.pem"}
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": "a.pem"}
    config = read_kubeconfig(Path(kubeconfig(tmp_path, user, cluster)))
    assert config is not None
    assert config.ssl_context.cert_store_stats()["x509"] == 1


async def test_a_rotated_token_file_is_reread(tmp_path, monkeypatch):
    monkeypatch.setattr("app.kube.config.TOKEN_SECONDS", -1.0)
    token = tmp_path / "token"
    config = await load_kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"}))
    with pytest.raises(ConfigError, match=f"^the token in {token} cannot be read: "):
        await config.authorization()
    token.write_text("first")
    assert await config.authorization() == "Bearer first"
    token.write_text("second")
    assert await config.authorization() == "Bearer second"
    token.unlink()  # for a moment, while it is being replaced
    assert await config.authorization() == "Bearer second"


@pytest.mark.parametrize("user", [{"token": "a"}, {}])
async def test_configurations_without_plugin_need_no_package(tmp_path, user):
    path = kubeconfig(tmp_path, user)
    script = (
        "import asyncio, sys; from app.kube.config import load_config\n"
        f"config = asyncio.run(load_config({path!r}, 'there'))\n"
        "print(config.host, config.namespace, 'kubernetes' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "http://127.0.0.1:2 shop False\n"


async def test_an_exec_plugin_may_return_certificates(tmp_path):
    pem = b"".join(self_signed()).decode()
    certificate = json.dumps({"clientCertificateData": pem, "clientKeyData": pem})
    user = plugin(tmp_path, f"{certificate} if n == 1 else dict({certificate}, clientKeyData='junk')")
    config = await load_kubeconfig(kubeconfig(tmp_path, user, {"server": "https://127.0.0.1:1"}))
    assert config.ssl_context is not None
    assert await config.authorization() is None
    with pytest.raises(ConfigError, match=r"the exec plugin .* returned an unusable certificate"):
        await config.renew()


@pytest.mark.parametrize(
    ("status", "then", "message"),
    [
        ("{}", "sys.exit('no ticket')", "exec: process returned 1. .*no ticket"),
        ("{}", "", "returned neither a token nor a certificate"),
        ("{}", "print('{'); sys.exit(0)", "failed to decode"),
    ],
)
async def test_a_failed_exec_plugin_is_an_error_with_its_output(tmp_path, status, then, message):
    path = kubeconfig(tmp_path, plugin(tmp_path, status, then))
    with pytest.raises(ConfigError, match=rf"^kubeconfig {path}: (?s:.*){message}"):
        await load_kubeconfig(path)


async def test_a_missing_exec_plugin_is_named(tmp_path):
    user = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/aws", "interactiveMode": "Never"}
    }
    with pytest.raises(ConfigError, match=r"the exec plugin /nowhere/aws cannot be run"):
        await load_kubeconfig(kubeconfig(tmp_path, user))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\xff", "cannot be read"),
        (b"a: [", "is not YAML"),
        (b"", "is not a kubeconfig: it lists no clusters"),
        (b"- a\n- b\n", "is not a kubeconfig: it lists no clusters"),
        (b"clusters: []\n", "no context is selected; set current-context .*; available contexts: none"),
        (b"clusters: []\ncurrent-context: a\n", "there is no context a; available contexts: none"),
        (b"clusters: [1]\ncurrent-context: a\ncontexts: 3\n", "is not a kubeconfig"),
        (
            b"clusters: [{name: c}]\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: d}}]\n",
            "context a refers to the cluster d, which does not exist",
        ),
        (
            b"clusters: [{name: c}]\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n",
            "context a refers to the user u, which does not exist",
        ),
        (b"clusters: []\ncurrent-context: [a]\n", "current-context is not the name of a context"),
        (
            b"clusters: [{name: c}]\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: [c]}}]\n",
            r"context a refers to the cluster \['c'\], which does not exist",
        ),
        (
            b"clusters: [{name: c, cluster: {}}]\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n",
            "the cluster of the context has no server address",
        ),
    ],
)
async def test_an_invalid_file_is_reported_with_a_hint(tmp_path, content, message):
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^kubeconfig {path}.*{message}"):
        await load_kubeconfig(str(path))


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"certificate-authority-data": "anVuaw=="}, "the certificates for https://127.0.0.1:1 cannot be used"),
        ({"certificate-authority": "ca.pem"}, "File does not exists: {folder}/ca.pem"),
    ],
    ids=["no certificate", "no file"],
)
async def test_an_unusable_certificate_is_named(tmp_path, cluster, message):
    path = kubeconfig(tmp_path, {"token": "a"}, {"server": "https://127.0.0.1:1", **cluster})
    with pytest.raises(ConfigError, match=f"^kubeconfig {path}: {message.format(folder=tmp_path)}"):
        await load_kubeconfig(path)


async def test_a_missing_file_is_reported_with_a_hint(tmp_path):
    with pytest.raises(ConfigError, match=rf"^kubeconfig {tmp_path}/none does not exist; use --kubeconfig FILE"):
        await load_config(str(tmp_path / "none"), environ={})


async def test_configurations_are_searched_in_order(tmp_path):
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    environ = {"HOME": str(home)}
    with pytest.raises(ConfigError, match=r"^no cluster configuration found: use --kubeconfig FILE"):
        await load_config(environ=environ)
    kubeconfig(home / ".kube", {"token": "home"})
    assert await (await load_config(environ=environ)).authorization() == "Bearer home"
    environ["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    with pytest.raises(ConfigError, match=r"service account of this Pod"):
        await load_config(environ=environ)
    environ["KUBECONFIG"] = kubeconfig(tmp_path, {"token": "variable"}, name="variable")
    assert await (await load_config(environ=environ)).authorization() == "Bearer variable"
    flag = kubeconfig(tmp_path, {"token": "flag"}, name="flag")
    assert await (await load_config(flag, environ=environ)).authorization() == "Bearer flag"


async def test_in_a_pod_the_service_account_is_used(tmp_path):
    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_bytes(self_signed()[0])
    config = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert config.host == "https://[fd00::1]:443"
    assert await config.authorization() == "Bearer first"
    assert config.ssl_context is not None
    (tmp_path / "token").write_text("second")
    assert await config.authorization() == "Bearer first"  # not read for each request
    await config.renew()
    assert await config.authorization() == "Bearer second"
