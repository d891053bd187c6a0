import pytest

from app.pods.inplace.completion import has_digest, same_image

DIGEST = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32


@pytest.mark.behaviour("PM-120")
@pytest.mark.parametrize(("one", "other", "same"), [
    ("busybox", "docker.io/library/busybox:latest", True),
    ("busybox:1", "index.docker.io/library/busybox:1", True),
    ("busybox:1", "busybox:2", False),
    ("busybox:1", "quay.io/busybox:1", False),
    ("localhost:5000/a/b:1", "localhost:5000/a/b:1", True),
    (f"busybox@{DIGEST}", f"docker.io/library/busybox:1@{DIGEST}", True),
    (f"busybox@{DIGEST}", f"docker-pullable://busybox@{DIGEST}", True),
    (f"busybox@{DIGEST}", f"busybox@{OTHER}", False),
    (f"busybox@{DIGEST}", f"other@{DIGEST}", False),
    (f"busybox:1@{DIGEST}", "busybox:1", True),
    (f"busybox@{DIGEST}", DIGEST, False),
    (DIGEST, DIGEST, False),
    ("", "", False),
    ("Not An Image", "Not An Image", False),
])  # fmt: skip
def test_references_to_the_same_image_are_equal(one: str, other: str, same: bool) -> None:
    assert same_image(one, other) is same
    assert same_image(other, one) is same


def test_a_reference_with_a_digest_differs_from_one_without() -> None:
    assert has_digest(f"registry.example/shop/web:1@{DIGEST}")
    assert not has_digest("registry.example/shop/web:1")
    assert not has_digest(DIGEST)
