"""Which credentials apply to which image, and which Secrets and plugins are unusable."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from app.daemon import credential_plugins
from app.daemon.credential_plugins import PluginConfigError, Plugins, duration, read_config
from app.daemon.credentials import (
    MAX_FILE_BYTES,
    MAX_SECRET_BYTES,
    CredentialsError,
    DockerConfig,
    Pattern,
    lookup,
    read_secret,
    without_credentials,
)
from app.daemon.cri.types import Auth
from app.daemon.metrics import Metrics
from app.kube.clock import SystemClock
from app.kube.objects import ObjectMeta, Secret


def secret(auths: Any, kind: str = "kubernetes.io/dockerconfigjson") -> Secret:
    body = {"auths": auths} if kind.endswith("json") else auths
    return holding(json.dumps(body).encode(), kind)


def holding(data: bytes, kind: str = "kubernetes.io/dockerconfigjson") -> Secret:
    key = ".dockerconfigjson" if kind.endswith("json") else ".dockercfg"
    return Secret(ObjectMeta(name="s", namespace="n"), kind, {key: data})


def keyring(*keys: str) -> Any:
    return read_secret(secret({key: {"username": key, "password": "p"} for key in keys}))


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize(
    ("keys", "image", "found"),
    [
        (["registry.example"], "registry.example/app:1", ["registry.example"]),
        (["registry.example"], "other.example/app:1", []),
        (["*.example"], "registry.example/app", ["*.example"]),
        (["*.example"], "a.registry.example/app", []),
        (["https://registry.example/v1/"], "registry.example/app", ["https://registry.example/v1/"]),
        (["http://registry.example/v2/"], "registry.example/app", ["http://registry.example/v2/"]),
        (["registry.example:5000"], "registry.example/app", []),
        (["registry.example"], "registry.example:5000/app", []),
        (["registry.example:5000"], "registry.example:5000/app", ["registry.example:5000"]),
        (["[::1]:5000"], "[::1]:5000/app", ["[::1]:5000"]),
        (["registry.example/team/"], "registry.example/teams/app", []),
        (["registry.example/team"], "registry.example/teams/app", ["registry.example/team"]),
        (["registry.example/"], "registry.example/app", ["registry.example/"]),
        (["*.example", "registry.example"], "registry.example/app", ["registry.example", "*.example"]),
        (
            ["registry.example", "registry.example/team", "registry.example/other"],
            "registry.example/team/app",
            ["registry.example/team", "registry.example"],
        ),
        (["index.docker.io"], "nginx", ["index.docker.io"]),
        (["https://index.docker.io/v1/"], "acme/app", ["https://index.docker.io/v1/"]),
        (["docker.io"], "nginx", ["docker.io"]),
        (["index.docker.io"], "registry.example/nginx", []),
        # The kubelet uses these two for Docker's registry only if no other matches.
        (["index.docker.io", "docker.io/acme"], "acme/app", ["docker.io/acme"]),
        (["index.docker.io", "docker.io/acme"], "other/app", ["index.docker.io"]),
        (["index.docker.io/v2"], "nginx", []),
        (["user@registry.example"], "registry.example/app", ["user@registry.example"]),
        (["[bad", "", "x" * 5000, "*" * 300 + ".example"], "registry.example/app", []),
    ],
)
def test_registry_keys_match_images_as_in_the_kubelet(keys: list[str], image: str, found: list[str]) -> None:
    assert [auth.username for auth in lookup(keyring(*keys), image)] == found


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize(
    ("entry", "auth"),
    [
        ({"username": "jane", "password": "word"}, ("jane", "word")),
        ({"auth": base64.b64encode(b"jane:wo:rd").decode()}, ("jane", "wo:rd")),
        ({"auth": base64.b64encode(b"jane:word").decode(), "username": "joe"}, ("jane", "word")),
        # As accepted by the kubelet: unpadded, wrapped, with empty parts.
        ({"auth": base64.b64encode(b"jane:wor").decode().rstrip("=")}, ("jane", "wor")),
        ({"auth": base64.encodebytes(b"jane:" + b"word" * 20).decode()}, ("jane", "word" * 20)),
        ({"auth": None, "username": "jane", "password": "word", "email": None}, ("jane", "word")),
    ],
)
@pytest.mark.parametrize("kind", ["kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"])
def test_credentials_are_read_in_every_format(entry: dict[str, str], auth: tuple[str, str], kind: str) -> None:
    found = lookup(read_secret(secret({"registry.example": entry}, kind)), "registry.example/app")
    assert [(one.username, one.password) for one in found] == [auth]


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize("data", [b"null", b"{}", b'{"auths": null}'])
def test_a_secret_without_registries_has_no_credentials(data: bytes) -> None:
    assert read_secret(holding(data)) == []


@pytest.mark.behaviour("KD-36", "KD-37")
@pytest.mark.parametrize(
    "data", [b"", b"[", b"[" * 100_000, b'{"auths": 7}', b"\xff", b'{"auths": {"a": {"auth": "x"}}}']
)
def test_an_unreadable_secret_is_named_and_not_printed(data: bytes) -> None:
    with pytest.raises(CredentialsError, match=r"^Secret n/s"):
        read_secret(holding(data))
    assert read_secret(Secret(ObjectMeta(name="s"), "Opaque", {".dockerconfigjson": data})) == []


@pytest.mark.behaviour("KD-104")
@pytest.mark.parametrize(
    ("auths", "why"),
    [
        ({"a": {"auth": "x" * MAX_SECRET_BYTES}}, "is ignored: it holds 262174 bytes, more than 262144"),
        ({f"r{number}": {} for number in range(257)}, "is ignored: it lists 257 registries, more than 256"),
    ],
)
def test_an_oversized_registry_secret_is_not_read(auths: Any, why: str) -> None:
    with pytest.raises(CredentialsError, match=f"^Secret n/s {why}$"):
        read_secret(secret(auths))
    assert read_secret(Secret(ObjectMeta(name="s"), "Opaque", {"x": b"x" * 2 * MAX_SECRET_BYTES})) == []


@given(st.text(min_size=3), st.text(min_size=3), st.text())
def test_credentials_are_removed_from_error_messages(user: str, password: str, around: str) -> None:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    text = without_credentials(f"{around}{password}|{encoded}", [Auth(user, password)])
    assert encoded not in text or encoded in around + "***"
    assert repr(Auth(user, password)) == "Auth()"


@pytest.mark.behaviour("KD-107")
def test_the_docker_configuration_is_searched_like_the_kubelet_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = DockerConfig.searched("/var/lib/kubelet", "/root")
    assert [*map(str, config.files)] == [
        "/var/lib/kubelet",
        "/var/lib/kubelet/config.json",
        "config.json",
        "/root/.docker/config.json",
        "/.docker/config.json",
        "/var/lib/kubelet/.dockercfg",
        ".dockercfg",
        "/root/.dockercfg",
        "/.dockercfg",
    ]


@pytest.mark.behaviour("KD-107")
async def test_the_first_readable_docker_configuration_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def names(user: str) -> dict[str, Any]:
        return {"registry.example": {"auth": base64.b64encode(f"{user}:word".encode()).decode()}}

    config = DockerConfig.searched(str(tmp_path / "kubelet"), str(tmp_path / "home"))
    # Ignore configuration files of this machine.
    config = DockerConfig(tuple(file for file in config.files if file.is_relative_to(tmp_path)))
    first, home, old = (tmp_path / name for name in ("kubelet", "home/.docker", "home"))
    home.mkdir(parents=True)

    async def used() -> list[str]:
        found = await config.credentials("registry.example/app:1", 1)
        return [auth.username for auth in lookup(found, "registry.example/app:1")]

    assert await used() == []
    (old / ".dockercfg").write_text(json.dumps(names("old")))
    assert await used() == ["old"]
    (home / "config.json").write_text(json.dumps({"auths": names("home"), "credsStore": "desktop"}))
    assert await used() == ["home"]
    first.write_text(json.dumps({"auths": names("file")}))
    assert await used() == ["file"]
    first.unlink()
    first.mkdir()
    assert (await used(), caplog.text) == (["home"], "")
    for content in ("", "{", '{"auths": {"a": {"auth": "c2VjcmV0"}}}', " " * MAX_FILE_BYTES + "{}"):
        (first / "config.json").write_text(content)
        assert await used() == ["home"]
        assert f"docker configuration {first}/config.json is ignored: " in caplog.text
        assert "c2VjcmV0" not in caplog.text
    (first / "config.json").unlink()
    os.mkfifo(first / "config.json")
    assert await used() == ["home"]


CONFIG: dict[str, Any] = {
    "kind": "CredentialProviderConfig",
    "apiVersion": "kubelet.config.k8s.io/v1",
    "providers": [
        {
            "name": "provider",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "matchImages": ["*.example"],
            "defaultCacheDuration": "12h",
        }
    ],
}


def response(version: str = "v1", **fields: Any) -> dict[str, Any]:
    return {
        "kind": "CredentialProviderResponse",
        "apiVersion": f"credentialprovider.kubelet.k8s.io/{version}",
        "cacheKeyType": "Registry",
        "auth": {"*.example": {"username": "robot", "password": "word"}},
        **fields,
    }


class Provider:
    """A credential plugin with its configuration; records requests and responses."""

    def __init__(self, folder: Path, answer: dict[str, Any] | str, **fields: Any) -> None:
        script = answer if isinstance(answer, str) else f"echo '{json.dumps(answer)}'"
        program = folder / "provider"
        program.write_text(f'#!/bin/sh\ncat >> {folder}/asked\necho " $GREETING $1" >> {folder}/asked\n{script}\n')
        program.chmod(0o755)
        self._asked = folder / "asked"
        self.now = 0.0
        self._registry = CollectorRegistry()
        metrics = Metrics(self._registry)
        config = {**CONFIG, "providers": [{**CONFIG["providers"][0], **fields}]}
        self.plugins = Plugins(read_config(config), str(folder), self, metrics.plugin_failed)  # type: ignore[arg-type]

    def monotonic(self) -> float:
        return self.now

    async def users(self, image: str, seconds: float = 60) -> list[str]:
        return [auth.username for auth in lookup(await self.plugins.credentials(image, seconds), image)]

    @property
    def failures(self) -> float | None:
        return self._registry.get_sample_value("credential_provider_plugin_errors_total", {"plugin_name": "provider"})

    @property
    def asked(self) -> list[str]:
        return self._asked.read_text().splitlines() if self._asked.exists() else []


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize(
    ("glob", "repository", "matches"),
    [
        # The table of the kubelet's own test.
        ("*.kubernetes.io", "prefix.kubernetes.io", True),
        ("prefix.*.io", "prefix.kubernetes.io", True),
        ("prefix.kubernetes.*", "prefix.kubernetes.io", True),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io", True),
        ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", True),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", True),
        ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io:1111/blah", True),
        ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", True),
        ("*.kubernetes.io", "kubernetes.io", False),
        ("*.*.kubernetes.io", "prefix.kubernetes.io", False),
        ("*.*.kubernetes.io", "kubernetes.io", False),
        ("*kubernetes.io", "a.kubernetes.io", False),
        ("*kubernetes.io", "kubernetes.io", True),
        ("*.*.*.kubernetes.io", "a.b.c.kubernetes.io", True),
        ("kubernetes.io", "kubernetes.com", False),
        ("k*.io", "quay.io", False),
        ("*.kubernetes.io:1234/blah", "prefix.kubernetes.io:1111/blah", False),
        ("prefix.*.io/foo", "prefix.kubernetes.io:1111/foo/bar", False),
        # Its documentation: 123456789.dkr.ecr.us-east-1.amazonaws.com, gcr.io, *.azurecr.io, registry.io:8080/path.
        ("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.us-east-1.amazonaws.com/app", True),
        ("registry.io:8080/path", "registry.io:8080/path/app", True),
        ("registry.io:*", "registry.io:8080/app", False),
        ("registry.io/*/app", "registry.io/team/app", False),
        # Unlike keys of Secrets, globs have neither scheme nor version.
        ("https://registry.io", "registry.io/app", False),
        ("registry.io/v1/", "registry.io/app", False),
        ("registry.io/v1/", "registry.io/v1/app", True),
        ("docker.io", "docker.io/library/nginx", True),
    ],
)
def test_a_plugin_is_called_only_for_matching_images(glob: str, repository: str, matches: bool) -> None:
    pattern = Pattern.of(glob)
    assert (pattern is not None and pattern.matches(repository)) is matches


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "../x"}, "name"),
        ({"name": ""}, "name"),
        ({"apiVersion": "v9"}, "apiVersion"),
        ({"matchImages": []}, "matchImages"),
        ({"matchImages": [7]}, "matchImages"),
        ({"matchImages": ["[bad"]}, "matchImages"),
        ({"defaultCacheDuration": "soon"}, "defaultCacheDuration"),
        ({"defaultCacheDuration": "-1s"}, "defaultCacheDuration"),
        ({"args": "x"}, "args"),
        ({"env": [{"name": 1}]}, "env"),
        ({"tokenAttributes": 1}, "tokenAttributes"),
    ],
)
def test_errors_in_the_plugin_configuration_are_named(change: dict[str, Any], field: str) -> None:
    provider = {**CONFIG["providers"][0], **change}
    with pytest.raises(PluginConfigError, match=rf"^providers\[0\]\.{field}: "):
        read_config({**CONFIG, "providers": [provider]})


def test_unknown_configuration_versions_and_fields_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(PluginConfigError, match=r"^apiVersion: "):
        read_config({**CONFIG, "apiVersion": "kubelet.config.k8s.io/v9"})
    for version in ("v1", "v1beta1", "v1alpha1"):
        assert read_config({**CONFIG, "apiVersion": f"kubelet.config.k8s.io/{version}"})
    assert caplog.text == ""
    read_config({**CONFIG, "providers": [{**CONFIG["providers"][0], "matchImage": []}]})
    assert "providers[0].matchImage: unknown field has no effect" in caplog.text


@pytest.mark.behaviour("KD-2")
def test_a_missing_configuration_is_ignored_and_an_invalid_one_refused(tmp_path: Path) -> None:
    Plugins.load(str(tmp_path / "none.yaml"), str(tmp_path), SystemClock())
    folder = tmp_path / "config"
    folder.mkdir()
    file = folder / "config.yaml"
    with pytest.raises(PluginConfigError, match=r"config contains no \.json, \.yaml or \.yml file"):
        Plugins.load(str(folder), str(tmp_path), SystemClock())
    for text in ("[", "7", json.dumps({**CONFIG, "providers": []}), json.dumps(CONFIG)):
        file.write_text(text)
        with pytest.raises(PluginConfigError, match=r"config\.yaml"):
            Plugins.load(str(file), str(tmp_path), SystemClock())
    (tmp_path / "provider").write_text("#!/bin/sh\n")
    (tmp_path / "provider").chmod(0o755)
    Plugins.load(str(file), str(tmp_path), SystemClock())
    # As for the kubelet, a folder of files is one configuration.
    Plugins.load(str(folder), str(tmp_path), SystemClock())
    (folder / "more.json").write_text(json.dumps(CONFIG))
    with pytest.raises(PluginConfigError, match=r"more\.json: duplicate provider provider"):
        Plugins.load(str(folder), str(tmp_path), SystemClock())


@pytest.mark.behaviour("KD-36", "KD-108")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "exited with code 3"),
        ("echo no json", "did not return a CredentialProviderResponse"),
        ("head -c 3000000 /dev/zero", "printed more than 1 MiB"),
        ("head -c 900000 /dev/zero | tr '\\0' '['", "did not return a CredentialProviderResponse"),
        (f"echo '{json.dumps(response(kind='Other'))}'", "of credentialprovider.kubelet.k8s.io/v1"),
        (f"echo '{json.dumps(response('v1beta1'))}'", "of credentialprovider.kubelet.k8s.io/v1"),
        (f"echo '{json.dumps(response(cacheKeyType='All'))}'", "valid cacheKeyType"),
        (f"echo '{json.dumps(response(auth={str(one): {} for one in range(300)}))}'", "300 registries, more than 256"),
        ("exec /does/not/exist", "exited with code 127"),
        ("absent", "cannot be started: No such file or directory"),
        ("sleep 1000 & sleep 1000", "did not respond within"),
    ],
)
async def test_a_failed_plugin_is_logged_counted_and_skipped(
    tmp_path: Path, script: str, why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(credential_plugins, "_SECONDS", 0.1)
    provider = Provider(tmp_path, script)
    if script == "absent":
        (tmp_path / "provider").unlink()
    assert await provider.users("registry.example/app:1") == []
    assert re.search(f"credential provider provider: .*{re.escape(why)}", caplog.text)
    assert provider.failures == 1
    assert await provider.users("other.registry/app:1") == []
    assert provider.failures == 1


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
async def test_a_plugin_is_called_like_the_kubelet_does(tmp_path: Path, version: str) -> None:
    api = f"credentialprovider.kubelet.k8s.io/{version}"
    env = [{"name": "GREETING", "value": "hello"}]
    provider = Provider(tmp_path, response(version), apiVersion=api, args=["there; exit 1"], env=env)
    # Pulls of one image at the same time run it once.
    assert await asyncio.gather(*map(provider.users, ("registry.example/app:1", "registry.example/app:2")))
    (line,) = provider.asked
    assert line.endswith(" hello there; exit 1")
    assert json.loads(line.removesuffix(" hello there; exit 1")) == {
        "kind": "CredentialProviderRequest",
        "apiVersion": api,
        "image": "registry.example/app",
    }
    assert await provider.users("registry.example/app") == ["robot"]
    provider.plugins.forget()
    await provider.users("registry.example/app")
    assert len(provider.asked) == 2


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize(
    ("fields", "runs"),
    [
        ({"cacheKeyType": "Image"}, 3),
        ({"cacheKeyType": "Registry"}, 2),
        ({"cacheKeyType": "Global"}, 1),
        ({"cacheKeyType": "Global", "cacheDuration": "0s"}, 6),
        ({"cacheKeyType": "Global", "cacheDuration": "1h"}, 2),
        ({"cacheKeyType": "Global", "cacheDuration": "1" * 100_000}, 6),
    ],
)
async def test_plugin_responses_are_cached_as_they_request(tmp_path: Path, fields: dict[str, Any], runs: int) -> None:
    provider = Provider(tmp_path, response(**fields))
    for provider.now in (0.0, 7200.0):
        for image in ("a.example/one", "a.example/two", "b.example/one"):
            assert await provider.users(image) == ["robot"]
    assert len(provider.asked) == runs


async def test_a_plugin_delays_only_its_own_pulls(tmp_path: Path) -> None:
    script = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; echo '{json.dumps(response())}'"
    provider = Provider(tmp_path, script)
    patient = asyncio.create_task(provider.users("registry.example/app"))
    assert await provider.users("registry.example/app", 0.1) == []
    (tmp_path / "go").touch()
    # The end of one pull does not end the run that another waits for.
    assert await patient == ["robot"]
    assert provider.failures is None


@pytest.mark.parametrize(("required", "runs"), [(True, 0), (False, 1)])
async def test_a_service_account_plugin_is_not_called(tmp_path: Path, required: bool, runs: int) -> None:
    attributes = {"serviceAccountTokenAudience": "x", "requireServiceAccount": required, "cacheType": "Token"}
    provider = Provider(tmp_path, response(), tokenAttributes=attributes)
    await provider.users("registry.example/app")
    assert len(provider.asked) == runs


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12h", 43200), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5), ("0", 0), ("", None), ("5x", None), ("5", None)],
)
def test_durations_parse_as_in_go(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@given(st.text(), st.text())
def test_any_pattern_and_any_image_are_safe(pattern: str, image: str) -> None:
    for found in (Pattern.of(pattern), Pattern.of_registry(pattern)):
        assert found is None or found.matches(image) in (True, False)
