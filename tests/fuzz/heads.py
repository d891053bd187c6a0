"""Hostile bytes for the HTTP port: requests corrupted where a parser may fail, and split at odd positions."""

from __future__ import annotations

from random import Random
from typing import Final

_METHODS: Final = (b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"CONNECT", b"PRI", b"get", b"", b"\x16\x03")
_PATHS: Final = (
    b"/mutate-pod", b"/validate-pod", b"/convert", b"/healthz", b"/metrics", b"/", b"*", b"", b"//", b"/%00", b"/%",
    b"/%ff", b"/../x", b"http://other/mutate-pod", b"/a?b=c#d", b"/\xc3\xa9", b"host:443", b"/" + b"a" * 9000, b"?",
)  # fmt: skip
_VERSIONS: Final = (
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/9.9",
    b"http/1.1",
    b"",
    b"X",
)
_HEADERS: Final = (
    b"host: x", b"content-type: application/json", b"content-type: text/plain", b"content-length: 0",
    b"content-length: 5", b"content-length: 2", b"content-length: -1", b"content-length: 18446744073709551616",
    b"content-length: 99999999", b"content-length: +5", b"content-length: 5, 5", b"content-length: " + b"9" * 5000,
    b"content-length:", b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked", b"transfer-encoding: x",
    b"expect: 100-continue", b"expect: x", b"connection: close", b"connection: keep-alive", b"connection: upgrade",
    b"upgrade: websocket", b"upgrade: h2c", b"x: " + b"a" * 40_000, b"x" * 40_000 + b": y", b" folded", b"x", b": y",
    b"x: \x00", b"x: \x80\xff", b"x\x00: y", b"x : y", b"x:\ty", b"trailer: x", b"", b"host: a\rb",
)  # fmt: skip
_BODIES: Final = (b"", b"{}", b"hello", b"null", b"\xff\xfe", b"[" * 3000, b'{"request":{"uid":"u"}}' + b" " * 500)
_CHUNKS: Final = (
    b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"5;a=b\r\nhello\r\n0\r\nx: y\r\n\r\n", b"fffffffffffffffff\r\n",
    b"-1\r\n",    b"1\r\na\r\n" * 2000 + b"0\r\n\r\n", b"5\r\nhel", b"zz\r\n", b"5\nhello\n0\n\n",
    b"5;" + b"e" * 200_000,
)  # fmt: skip
_ENDS: Final = (b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"")


def stream(random: Random) -> list[bytes]:
    """Return the bytes that one client sends, in the pieces in which they arrive."""
    data = b"".join(_request(random) for _ in range(random.choice((1, 1, 1, 2, 3, 50))))
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        at = random.randrange(len(data) + 1)
        data = data[:at] + random.randbytes(random.choice((0, 1, 3))) + data[at + random.choice((0, 1, 20)) :]
    if len(data) > 1 and random.random() < 0.3:
        cuts = sorted(random.randrange(len(data)) for _ in range(random.choice((1, 2, 10))))
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]
    if random.random() < 0.02:
        return [bytes([byte]) for byte in data[:2000]]
    return [data]


def _request(random: Random) -> bytes:
    headers = random.choices(_HEADERS[:5], k=2) + random.choices(_HEADERS, k=random.choice((0, 0, 1, 2, 3)))
    if random.random() < 0.02:
        headers += [b"x: y"] * 300
    body = random.choice(_BODIES)
    if random.random() < 0.6:
        headers = [line for line in headers if not line.startswith(b"content-length")]
        headers.append(b"content-length: %d" % len(body))
    elif random.random() < 0.5:
        headers.append(b"transfer-encoding: chunked")
        body = random.choice(_CHUNKS)
    random.shuffle(headers)
    first = b" ".join((random.choice(_METHODS), random.choice(_PATHS), random.choice(_VERSIONS)))
    if random.random() < 0.7:
        first = b"POST " + random.choice(_PATHS[:5]) + b" HTTP/1.1"
    end = random.choice(_ENDS) if random.random() < 0.1 else b"\r\n"
    return first + end + b"".join(line + end for line in headers) + end + body
