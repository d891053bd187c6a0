"""Pregenerated RSA keys: generating one takes longer than simulating ten minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric import rsa

POOL = 4
_generate = rsa.generate_private_key


@cache
def _key(_number: int) -> rsa.RSAPrivateKey:
    return _generate(public_exponent=65537, key_size=2048)


def make_all() -> None:
    for number in range(POOL):
        _key(number)


@contextmanager
def keys_by_seed(seed: int) -> Iterator[None]:
    """Inside the context, take RSA keys from the pool."""
    rng = Random(seed)
    with patch("app.certs.issue.rsa.generate_private_key", lambda **_options: _key(rng.randrange(POOL))):
        yield
