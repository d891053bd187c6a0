"""Keys and certificates made beforehand: making an RSA key takes longer than simulating ten minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric import rsa

POOL = 6


@cache
def _keys() -> tuple[rsa.RSAPrivateKey, ...]:
    return tuple(rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(POOL))


@contextmanager
def keys_by_seed(seed: int) -> Iterator[None]:
    """Inside, whoever makes an RSA key gets one of the pool."""
    rng, keys = Random(seed), _keys()
    with patch("app.certs.issue.rsa.generate_private_key", lambda **_options: keys[rng.randrange(POOL)]):
        yield
