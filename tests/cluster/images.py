"""Small container images with common names: a shared layer with busybox, and a layer that makes each image different.

Their containers keep running, do nothing, and stop at once on SIGTERM (otherwise every deletion would wait for the
grace period). That holds for the image's own command and for `sleep N`; as in any image, a shell as the first process
ignores SIGTERM. An image with a port answers HTTP requests there with its own name.
"""

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.cluster.errors import ClusterError

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"

_ENTRYPOINT = """#!/bin/sh
trap 'exit 0' TERM INT
if [ $# -gt 0 ] && command -v "$1" >/dev/null; then exec "$@"; fi
if [ -n "$PORT" ]; then httpd -p "$PORT" -h /www; fi
while :; do busybox sleep 86400 & wait $!; done
"""
_SLEEP = """#!/bin/sh
trap 'exit 0' TERM INT
busybox sleep "$@" &
wait $!
"""
_APPLETS = """
ash awk basename cat chmod chown cp cut date dd df dirname du echo env expr false find getent grep gunzip gzip
head hostname httpd id ip kill ln ls md5sum mkdir mknod mktemp mount mv nc netstat nslookup pgrep ping pkill
printenv ps pwd readlink realpath rm rmdir sed seq sh sha256sum sort stat sync tail tar tee test timeout top
touch tr true tty umount uname uniq uptime vi wc wget which whoami xargs yes
"""


@dataclass(frozen=True, slots=True)
class Image:
    """An image to build: its reference in Pods, and the port on which it answers HTTP, if any."""

    reference: str
    port: int | None = None

    @property
    def repository(self) -> str:
        """Return the path in the registry: `library/nginx` for `nginx:1.25`; the host is left out."""
        name = self.reference.partition("@")[0]
        name = name[: -len(self.tag) - 1] if ":" in name.rpartition("/")[2] else name
        host, _, rest = name.partition("/")
        if rest and ("." in host or ":" in host or host == "localhost"):
            return f"library/{rest}" if host == "docker.io" and "/" not in rest else rest
        return name if rest else f"library/{name}"

    @property
    def tag(self) -> str:
        if "@" in self.reference:
            raise ClusterError(f"image {self.reference}: specify a tag, not a digest")
        last = self.reference.rpartition("/")[2]
        return last.partition(":")[2] or "latest"


PAUSE = Image("registry.k8s.io/pause:3.10")

# Images for tests and users; a test that needs others adds them (Registry.add).
DEFAULT_IMAGES = (
    PAUSE,
    *(Image(f"nginx:{tag}", port=80) for tag in ("1.24", "1.25", "1.26", "1.27", "latest")),
    *(Image(f"busybox:{tag}") for tag in ("1.35", "1.36", "latest")),
    *(Image(f"alpine:{tag}") for tag in ("3.19", "3.20", "latest")),
    *(Image(f"redis:{tag}") for tag in ("6.2", "7.0", "latest")),
    *(Image(f"ubuntu:{tag}") for tag in ("22.04", "24.04", "latest")),
    *(Image(f"centos:{tag}") for tag in ("6.7", "6.8", "7", "latest")),
    *(Image(f"fluent/fluentd:{tag}") for tag in ("v1.16", "v1.17")),
    *(Image(f"envoyproxy/envoy:{tag}") for tag in ("v1.30", "v1.31")),
    *(Image(f"openkruise/hotupgrade-sample:{tag}") for tag in ("sidecarv1", "sidecarv2", "empty")),
)


@dataclass(frozen=True, slots=True)
class Built:
    """A built image, as pushed to a registry."""

    manifest: bytes
    blobs: tuple[bytes, ...]


def build(image: Image, busybox: Path) -> Built:
    """Return the blobs and the manifest of `image`. The same input gives the same output."""
    own = _layer({"etc/image": (f"{image.reference}\n".encode(), 0o644), "www/index.html": (_page(image), 0o644)}, {})
    layers = [_base_layer(busybox), own]
    environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    if image.port:
        environment.append(f"PORT={image.port}")
    config = _json(
        {
            "architecture": _architecture(busybox),
            "os": "linux",
            "config": {"Entrypoint": ["/entrypoint"], "Env": environment, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        }
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor(_CONFIG_TYPE, config),
        "layers": [_descriptor(_LAYER_TYPE, layer) for layer in layers],
    }
    return Built(_json(manifest), (config, *layers))


def digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _page(image: Image) -> bytes:
    return f"{image.reference}\n".encode()


@cache
def _base_layer(busybox: Path) -> bytes:
    files = {
        "bin/busybox": (busybox.read_bytes(), 0o755),
        "bin/sleep": (_SLEEP.encode(), 0o755),
        "entrypoint": (_ENTRYPOINT.encode(), 0o755),
        "etc/passwd": (b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", 0o644),
        "etc/group": (b"root:x:0:\nnogroup:x:65534:\n", 0o644),
        "root/.keep": (b"", 0o644),
        "tmp/.keep": (b"", 0o644),
        "usr/bin/.keep": (b"", 0o644),
    }
    return _layer(files, {f"bin/{applet}": "busybox" for applet in _APPLETS.split()})


def _layer(files: dict[str, tuple[bytes, int]], links: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in sorted({str(Path(path).parent) for path in [*files, *links]} - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for path, (content, mode) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
        for path, target in links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


@cache
def _architecture(busybox: Path) -> str:
    """Return the architecture in Go's terms, from the header of the program."""
    machine = int.from_bytes(busybox.read_bytes()[18:20], "little")
    names = {0x3E: "amd64", 0xB7: "arm64"}
    if machine not in names:
        raise ClusterError(f"{busybox} is for a processor (ELF machine {machine:#x}) that images.py does not know")
    return names[machine]


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}


def _json(content: dict[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
