"""Which credentials are for which image, and what makes Secrets and plugins unusable."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.daemon.credentials import (
    MAX_SECRET_BYTES,
    CredentialsError,
    PluginConfigError,
    Plugins,
    duration,
    lookup,
    matches_any,
    read_config,
    read_secret,
    without_credentials,
)
from app.daemon.cri.types import Auth
from app.kube.clock import SystemClock
from app.kube.objects import ObjectMeta, Secret


def secret(auths: Any, kind: str = "kubernetes.io/dockerconfigjson") -> Secret:
    key, body = (".dockerconfigjson", {"auths": auths}) if kind.endswith("json") else (".dockercfg", auths)
    return Secret(ObjectMeta(name="s", namespace="n"), kind, {key: json.dumps(body).encode()})


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
        (
            ["registry.example", "registry.example/team", "registry.example/other"],
            "registry.example/team/app",
            ["registry.example/team", "registry.example"],
        ),
        (["index.docker.io"], "nginx", ["index.docker.io"]),
        (["https://index.docker.io/v1/"], "acme/app", ["https://index.docker.io/v1/"]),
        (["docker.io"], "nginx", ["docker.io"]),
        (["index.docker.io"], "registry.example/nginx", []),
        (["[bad", "", "user@registry.example", "x" * 5000, "*" * 300 + ".example"], "registry.example/app", []),
    ],
)
def test_which_keys_are_for_an_image(keys: list[str], image: str, found: list[str]) -> None:
    assert [auth.username for auth in lookup(keyring(*keys), image)] == found


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize(
    ("entry", "auth"),
    [
        ({"username": "jane", "password": "word"}, ("jane", "word")),
        ({"auth": base64.b64encode(b"jane:wo:rd").decode()}, ("jane", "wo:rd")),
        ({"auth": base64.b64encode(b"jane:word").decode(), "username": "joe"}, ("jane", "word")),
        # As a kubelet takes them: without padding, wrapped, with nothing where nothing is known.
        ({"auth": base64.b64encode(b"jane:wor").decode().rstrip("=")}, ("jane", "wor")),
        ({"auth": base64.encodebytes(b"jane:" + b"word" * 20).decode()}, ("jane", "word" * 20)),
        ({"auth": None, "username": "jane", "password": "word", "email": None}, ("jane", "word")),
    ],
)
@pytest.mark.parametrize("kind", ["kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"])
def test_how_credentials_are_written(entry: dict[str, str], auth: tuple[str, str], kind: str) -> None:
    found = lookup(read_secret(secret({"registry.example": entry}, kind)), "registry.example/app")
    assert [(one.username, one.password) for one in found] == [auth]


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize("data", [b"null", b"{}", b'{"auths": null}'])
def test_a_secret_without_registries_has_no_credentials(data: bytes) -> None:
    empty = Secret(ObjectMeta(name="s", namespace="n"), "kubernetes.io/dockerconfigjson", {".dockerconfigjson": data})
    assert read_secret(empty) == []


@pytest.mark.behaviour("KD-36", "KD-37")
@pytest.mark.parametrize(
    "data", [b"", b"[", b"[" * 100_000, b'{"auths": 7}', b"\xff", b'{"auths": {"a": {"auth": "x"}}}']
)
def test_a_secret_that_cannot_be_read_is_named_and_not_shown(data: bytes) -> None:
    bad = Secret(ObjectMeta(name="s", namespace="n"), "kubernetes.io/dockerconfigjson", {".dockerconfigjson": data})
    with pytest.raises(CredentialsError, match=r"^Secret n/s"):
        read_secret(bad)
    assert read_secret(Secret(ObjectMeta(name="s"), "Opaque", {".dockerconfigjson": data})) == []


@pytest.mark.behaviour("KD-104")
@pytest.mark.parametrize(
    ("auths", "why"),
    [
        ({"a": {"auth": "x" * MAX_SECRET_BYTES}}, "is ignored: it holds 262174 bytes, more than 262144"),
        ({f"r{number}": {} for number in range(257)}, "is ignored: it lists 257 registries, more than 256"),
    ],
)
def test_a_secret_that_holds_more_than_any_of_a_registry_is_not_read(auths: Any, why: str) -> None:
    with pytest.raises(CredentialsError, match=f"^Secret n/s {why}$"):
        read_secret(secret(auths))
    assert read_secret(Secret(ObjectMeta(name="s"), "Opaque", {"x": b"x" * 2 * MAX_SECRET_BYTES})) == []


@given(st.text(min_size=3), st.text(min_size=3), st.text())
def test_credentials_are_taken_out_of_what_others_say(user: str, password: str, around: str) -> None:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    text = without_credentials(f"{around}{password}|{encoded}", [Auth(user, password)])
    assert encoded not in text or encoded in around + "***"
    assert repr(Auth(user, password)) == "Auth()"


CONFIG: dict[str, Any] = {
    "kind": "CredentialProviderConfig",
    "providers": [
        {
            "name": "provider",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "matchImages": ["*.example"],
            "defaultCacheDuration": "12h",
        }
    ],
}


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "../x"}, "name"),
        ({"name": ""}, "name"),
        ({"apiVersion": "v9"}, "apiVersion"),
        ({"matchImages": []}, "matchImages"),
        ({"matchImages": [7]}, "matchImages"),
        ({"defaultCacheDuration": "soon"}, "defaultCacheDuration"),
        ({"args": "x"}, "args"),
        ({"env": [{"name": 1}]}, "env"),
    ],
)
def test_a_configuration_of_plugins_names_its_mistake(change: dict[str, Any], field: str) -> None:
    provider = {**CONFIG["providers"][0], **change}
    with pytest.raises(PluginConfigError, match=rf"^providers\[0\]\.{field}: "):
        read_config({**CONFIG, "providers": [provider]})
    assert len(read_config(CONFIG)) == 1


@pytest.mark.behaviour("KD-2")
def test_a_configuration_file_that_is_missing_is_none_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    Plugins.load(str(tmp_path / "none.yaml"), str(tmp_path), SystemClock())
    file = tmp_path / "config.yaml"
    for text in ("[", "7", json.dumps({**CONFIG, "providers": []}), json.dumps(CONFIG)):
        file.write_text(text)
        with pytest.raises(PluginConfigError, match=r"config\.yaml"):
            Plugins.load(str(file), str(tmp_path), SystemClock())
    (tmp_path / "provider").write_text("#!/bin/sh\n")
    (tmp_path / "provider").chmod(0o755)
    Plugins.load(str(file), str(tmp_path), SystemClock())


@pytest.mark.behaviour("KD-36")
@pytest.mark.parametrize(
    "script",
    [
        "exit 3",
        "echo no json",
        "cat >/dev/null; head -c 3000000 /dev/zero",
        'echo \'{"kind": "Other"}\'',
        "exec /does/not/exist",
    ],
)
async def test_a_plugin_that_does_not_answer_counts_as_silent(
    tmp_path: Path, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "provider").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "provider").chmod(0o755)
    plugins = Plugins(read_config(CONFIG), str(tmp_path), SystemClock())
    assert await plugins.credentials("registry.example/app:1") == []
    assert "credential provider provider: " in caplog.text
    assert await plugins.credentials("other.registry/app:1") == []


@pytest.mark.behaviour("KD-36")
async def test_a_plugin_is_asked_as_the_kubelet_asks_and_its_answer_kept(tmp_path: Path) -> None:
    answer = {
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry",
        "auth": {"*.example": {"username": "robot", "password": "word"}},
    }
    asking = f'cat >> {tmp_path}/asked\necho "$GREETING $1" >> {tmp_path}/asked'
    (tmp_path / "provider").write_text(f"#!/bin/sh\n{asking}\necho '{json.dumps(answer)}'\n")
    (tmp_path / "provider").chmod(0o755)
    env = [{"name": "GREETING", "value": "hello"}]
    provider = {**CONFIG["providers"][0], "args": ["there"], "env": env}
    plugins = Plugins(read_config({**CONFIG, "providers": [provider]}), str(tmp_path), SystemClock())
    for tag in ("1", "2"):
        known = await plugins.credentials(f"registry.example/app:{tag}")
        assert [auth.username for auth in lookup(known, f"registry.example/app:{tag}")] == ["robot"]
    asked = (tmp_path / "asked").read_text()
    assert asked.endswith("hello there\n")
    assert json.loads(asked.removesuffix("hello there\n")) == {
        "kind": "CredentialProviderRequest",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "image": "registry.example/app:1",
    }
    plugins.forget()
    await plugins.credentials("registry.example/app:1")
    assert (tmp_path / "asked").read_text().count("hello there") == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("12h", 43200.0), ("1h30m", 5400.0), ("500ms", 0.5), ("0", 0.0), ("", None), ("5x", None)]
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@given(st.text(), st.text())
def test_no_pattern_and_no_image_does_harm(pattern: str, image: str) -> None:
    matches_any([pattern], image)
