"""Builds the image as an OCI archive for amd64 and arm64 from Debian packages and PyPI wheels.

No program of the other architecture has to run: packages and wheels are only unpacked, and bytecode is portable. The
image contains no shell and no package manager. The Dockerfile builds the same program on any other base image.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from deploy.release.archives import sha256, write_tar
from tests.cluster.packages import debian_sources

PYTHON: Final = (3, 11)
#: The chart's default image name.
NAME: Final = "docker.io/pykruise/kruise-manager"
_PACKAGES: Final = (
    *("base-files", "media-types", "netbase", "libc6", "libcrypt1", "libgcc-s1", "libstdc++6", "zlib1g"),
    *("libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libssl3", "libuuid1"),
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
)
#: Standard library modules to remove, because the image lacks the system libraries they need.
_WITHOUT_LIBRARY: Final = ("_curses", "_curses_panel", "_dbm", "_sqlite3", "nis", "readline")
#: Folders of usr/share to remove.
_NOT_NEEDED: Final = ("applications", "binfmts", "bug", "lintian", "man")
_SITE: Final = "usr/local/lib/python3.11/dist-packages"
#: Folders excluded from the image, as in the Dockerfile.
_LEFT_OUT: Final = ("app/sandbox", "app/generate")
#: Modules of the API client that are not used. Their bytecode would be a third of the image.
_NOT_COMPILED: Final = "/kubernetes/.*/(models|api)/"
_COMMAND: Final = "#!/usr/bin/python3.11\nfrom app.cli.entry import main\n\nmain()\n"
_USERS: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
_GLIBC: Final = range(36, 4, -1)
_OCI: Final = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Platform:
    """A processor architecture: its name in Debian and Go, its name in wheel tags, and its number in ELF headers."""

    name: str
    wheels: str
    machine: int


PLATFORMS: Final = (Platform("amd64", "x86_64", 0x3E), Platform("arm64", "aarch64", 0xB7))


class ImageError(Exception):
    """The image cannot be built, or must not be released."""


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package in the image."""

    name: str
    version: str
    architecture: str


def build(target: Path, work: Path, source: Path, wheel: Path, version: str, epoch: int) -> list[Package]:
    """Write the OCI archive with one image per platform. Returns the Debian packages in it."""
    if sys.version_info[:2] != PYTHON:
        raise ImageError(f"the image needs bytecode of Python 3.11, and this is {sys.version.split()[0]}")
    layout, packages = work / "layout", list[Package]()
    (layout / "blobs/sha256").mkdir(parents=True)
    manifests = []
    for platform in PLATFORMS:
        print(f"image for {platform.name}", file=sys.stderr, flush=True)
        layers = work / platform.name
        packages += _base(layers / "base", work / f"debian-{platform.name}", platform)
        _dependencies(layers / "dependencies", source / "requirements.lock", platform)
        _program(layers / "program", wheel)
        for layer in ("base", "dependencies", "program"):
            _compile(layers / layer)
            check_machine(layers / layer, platform)
        manifests.append(_manifest(layout, layers, platform, version, epoch))
    index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": manifests}
    names = {"io.containerd.image.name": f"{NAME}:v{version}", "org.opencontainers.image.ref.name": f"v{version}"}
    entry = {**_blob(layout, _json(index), f"{_OCI}.index.v1+json"), "annotations": names}
    (layout / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [entry]}))
    (layout / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    write_tar(target, layout, epoch)
    return packages


def _base(root: Path, work: Path, platform: Platform) -> list[Package]:
    root.mkdir(parents=True)
    _download(work, platform)
    status, packages = [], []
    for package in sorted(work.glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(root))
        fields = _run("dpkg-deb", "--field", str(package))
        status.append(fields.replace("\n", "\nStatus: install ok installed\n", 1))
        described = dict(line.split(": ", 1) for line in fields.splitlines() if ": " in line and line[0] != " ")
        packages.append(Package(described["Package"], described["Version"], described["Architecture"]))
    for name in _NOT_NEEDED:
        shutil.rmtree(root / "usr/share" / name, ignore_errors=True)
    for path in list((root / "usr/share/doc").rglob("*")):
        if path.name != "copyright" and not path.is_dir():
            path.unlink()
    for module in _WITHOUT_LIBRARY:
        for path in root.glob(f"usr/lib/python3.11/lib-dynload/{module}.*"):
            path.unlink()
    # Vulnerability scanners read the installed packages from this file.
    files = _USERS | {"var/lib/dpkg/status": "\n".join(status)}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return packages


def _download(work: Path, platform: Platform) -> None:
    """Download the packages with apt, using a separate state and the platform's architecture."""
    (work / "state/lists/partial").mkdir(parents=True)
    (work / "cache/archives/partial").mkdir(parents=True)
    (work / "status").touch()
    sources, release = debian_sources()
    if release != "bookworm":
        raise ImageError(f"the image is made from Debian 12 (bookworm), and this machine has the packages of {release}")
    (work / "sources.list").write_text(sources)
    options = {
        "APT::Architecture": platform.name,
        "APT::Architectures": platform.name,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Dir::Cache": work / "cache",
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",
    }
    apt = ["apt-get", "-qq", *(f"--option={name}={value}" for name, value in options.items())]
    _run(*apt, "update", folder=work)
    _run(*apt, "download", *_PACKAGES, folder=work)


def _dependencies(root: Path, lock: Path, platform: Platform) -> None:
    tags = [*(f"manylinux_2_{minor}" for minor in _GLIBC), "manylinux2014", "manylinux2010", "manylinux1"]
    platforms = [f"--platform={tag}_{platform.wheels}" for tag in tags]
    python = ["--implementation=cp", "--python-version=3.11", "--only-binary=:all:"]
    _pip_install(root, "--require-hashes", *python, *platforms, f"--requirement={lock}")


def _program(root: Path, wheel: Path) -> None:
    with ZipFile(wheel) as archive:  # pip would record the path of the wheel
        archive.extractall(root / _SITE)
    for name in _LEFT_OUT:
        shutil.rmtree(root / _SITE / name)
    command = root / "usr/local/bin/pykruise"
    command.parent.mkdir(parents=True)
    command.write_text(_COMMAND)
    command.chmod(0o755)


def _pip_install(root: Path, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    _run(*pip, "--no-compile", "--no-deps", f"--target={root / _SITE}", *arguments)
    shutil.rmtree(root / _SITE / "bin", ignore_errors=True)  # scripts with the path of the Python that ran pip


def _compile(root: Path) -> None:
    """Compile to bytecode that is never checked against its source, because the file system is read-only."""
    arguments = ["-q", "--invalidation-mode=unchecked-hash", f"-x={_NOT_COMPILED}", f"-s={root}", "-p=/", str(root)]
    _run(sys.executable, "-m", "compileall", *arguments)


def check_machine(root: Path, platform: Platform) -> int:
    """Return the number of programs and libraries below ``root``. Raises ImageError if one has another architecture."""
    checked = 0
    for path in root.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            head = file.read(20)
        if head[:4] == b"\x7fELF":
            checked += 1
            if int.from_bytes(head[18:20], "little") != platform.machine:
                raise ImageError(f"{path.relative_to(root)} is not for {platform.name}")
    return checked


def _manifest(layout: Path, layers: Path, platform: Platform, version: str, epoch: int) -> dict[str, Any]:
    descriptors, ids = [], []
    for name in ("base", "dependencies", "program"):
        archive = layers / f"{name}.tar.gz"
        write_tar(archive, layers / name, epoch)
        with gzip.open(archive) as plain:
            ids.append(f"sha256:{hashlib.file_digest(plain, 'sha256').hexdigest()}")
        digest = sha256(archive)
        descriptors.append(_descriptor(f"{_OCI}.layer.v1.tar+gzip", digest, archive.stat().st_size))
        archive.rename(layout / "blobs/sha256" / digest)
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "SSL_CERT_FILE": f"/{_SITE}/certifi/cacert.pem",
    }
    configuration = {
        "architecture": platform.name,
        "os": "linux",
        "created": datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z"),
        "config": {
            "User": "65534:65534",
            "Entrypoint": ["pykruise"],
            "Cmd": ["manager"],
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "ExposedPorts": {f"{port}/tcp": {} for port in (8000, 8080, 9876)},
            "Labels": {
                "org.opencontainers.image.title": "pykruise",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": ids},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": _blob(layout, _json(configuration), f"{_OCI}.config.v1+json"),
        "layers": descriptors,
    }
    entry = _blob(layout, _json(manifest), f"{_OCI}.manifest.v1+json")
    return {**entry, "platform": {"architecture": platform.name, "os": "linux"}}


def _blob(layout: Path, content: bytes, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(content)
    return _descriptor(media_type, digest, len(content))


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _run(*command: str, folder: Path | None = None) -> str:
    environment = os.environ | {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
