"""Image references, and caches keyed by user-controlled text, which are also limited in bytes."""

from __future__ import annotations

import msgspec
import pytest

from app.kube.images import LONGEST, familiar_image, parse_image, remembered
from app.kube.objects import Container, decode_pod
from app.pods.container_meta import plain_hash


@pytest.mark.behaviour("IMG-20")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ubuntu", ("ubuntu", "latest")),
        ("docker.io/library/ubuntu:latest", ("ubuntu", "latest")),
        ("index.docker.io/library/ubuntu", ("ubuntu", "latest")),
        ("docker.io/acme/app:1", ("acme/app", "1")),
        ("docker.io/library/acme/app:1", ("library/acme/app", "1")),
        ("reg:5000/my/image:v1", ("reg:5000/my/image", "v1")),
        ("localhost/app", ("localhost/app", "latest")),
        ("ubuntu:20.04@sha256:" + "0" * 64, ("ubuntu", "sha256:" + "0" * 64)),
        ("Registry.example/x:1", ("Registry.example/x", "1")),
        ("UPPER/x", None),
        ("ubuntu/X", None),
        ("bad image", None),
        ("", None),
        ("a" * 64, None),
        ("a" * 237, ("a" * 237, "latest")),
        ("a" * 238, None),
        ("ubuntu@sha512:" + "0" * 128, ("ubuntu", "sha512:" + "0" * 128)),
        ("ubuntu@sha256:" + "0" * 63, None),
        ("ubuntu@sha256:" + "A" * 64, None),
        ("ubuntu@md5:" + "0" * 32, None),
    ],
)
def test_names_match_openkruise(text: str, shown: tuple[str, str] | None) -> None:
    found = familiar_image(text)
    assert (found and (found.name, found.tag)) == shown


@pytest.mark.behaviour("IMG-100")
def test_a_digest_is_joined_with_an_at_sign() -> None:
    assert str(familiar_image("ubuntu@sha256:" + "0" * 64)) == "ubuntu@sha256:" + "0" * 64
    assert str(familiar_image("ubuntu:1")) == "ubuntu:1"


def test_long_texts_are_not_cached() -> None:
    asked: list[tuple[str, ...]] = []

    @remembered(2)
    def joined(*texts: str) -> str:
        """Join the texts."""
        asked.append(texts)
        return "".join(texts)

    for _ in range(2):
        assert joined("a", "b") == "ab"
        assert joined("x" * LONGEST, "y") == "x" * LONGEST + "y"
    assert [len(texts[0]) for texts in asked] == [1, LONGEST, LONGEST]
    assert joined.__doc__ == "Join the texts."


def test_huge_images_and_hashes_are_not_cached() -> None:
    for function, texts in (
        (parse_image, ("a" * 1_000_000,)),
        (familiar_image, ("b" * 1_000_000,)),
        (plain_hash, ("main", "c" * 1_000_000)),
    ):
        before = function.cache_info().currsize  # type: ignore[attr-defined]
        function(*texts)  # type: ignore[operator]
        assert function.cache_info().currsize == before  # type: ignore[attr-defined]


def test_container_env_is_cached_unless_long() -> None:
    def container(name: str) -> Container:
        env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}]
        return decode_pod(msgspec.json.encode({"spec": {"containers": [{"name": "m", "env": env}]}})).spec.containers[0]

    assert container("SHORT").env is container("SHORT").env
    assert container("L" * 100_000).env is not container("L" * 100_000).env
    assert container("L" * 100_000).env == container("L" * 100_000).env
