"""The manager's image, built from the unmodified Dockerfile.

Public base images cannot be pulled everywhere, so an equivalent image made from Debian's packages (mmdebstrap) replaces
`python:3.11-slim`; buildah then builds the Dockerfile on it. Both images are cached: the base image until its recipe
changes, ours until one of its inputs changes.
"""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tests.cluster import packages
from tests.cluster.errors import ClusterError
from tests.cluster.paths import SOURCE, cache_dir, locked

ROOT = SOURCE.parents[1]
_BASE = "docker.io/library/python:3.11-slim"
_KEPT_IMAGES = 3
_BASE_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
# The official image has python and pip in /usr/local/bin, and lets pip install.
_BASE_HOOK = (
    'ln -s /usr/bin/python3 "$1/usr/local/bin/python" && ln -s /usr/bin/pip3 "$1/usr/local/bin/pip" && '
    'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED'
)
_BASE_CONTAINERFILE = """FROM scratch
ADD rootfs.tar /
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python3"]
"""
# The part of apt's configuration that concerns downloads.
_FETCHING = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries", "Acquire::Force")
# Files that pip needs to reach its index from this machine: certificates and configuration.
_FOR_PIP = ("/etc/ssl/certs", "/etc/pip.conf")


def build(context: Path = ROOT) -> Path:
    """Build the image from the Dockerfile in `context` as an OCI layout, if missing."""
    folder = cache_dir() / "images"
    folder.mkdir(exist_ok=True)
    with locked(folder / "lock"):
        target = folder / f"pykruise-{_digest(context)}"
        if not target.is_dir():
            packages.ensure_installed("buildah", "mmdebstrap")
            base = _ensure_base(folder)
            _build_into(target, context, base)
            _forget_old_images(folder)
        return target


def extract_before(folder: Path) -> None:
    """Write into `folder` the sources from before the last commit that changed the image's inputs."""
    parts = ["Dockerfile", ".dockerignore", *_lets_in(ROOT)]
    changed = _git("rev-list", "--max-count=1", "HEAD", "--", *parts).decode().strip()
    before = f"{changed}^"
    archive = subprocess.run(["tar", "-x", "-C", str(folder)], input=_git("archive", before), check=False)
    if archive.returncode:
        raise ClusterError(f"the sources of {before} cannot be put into {folder}")


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"git {arguments[0]}: {done.stderr.decode().strip()}; a full clone is required")
    return done.stdout


def _build_into(target: Path, context: Path, base: str) -> None:
    began = time.monotonic()
    volumes = [f"--volume={path}:{path}:ro" for path in _FOR_PIP if Path(path).exists()]
    image = f"localhost/{target.name}"
    _buildah(target.parent, "tag", base, _BASE)
    _buildah(target.parent, "bud", "--isolation=chroot", "--layers", *volumes, f"--tag={image}", str(context))
    unfinished = target.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    _buildah(target.parent, "push", "--quiet", image, f"oci:{unfinished}:latest")
    unfinished.rename(target)
    print(f"built the manager's image in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _ensure_base(folder: Path) -> str:
    """Return the name of the base image in buildah's storage. Builds the image if it is missing."""
    sources, release = packages.debian_sources()
    recipe = "\n".join([release, _BASE_PACKAGES, _BASE_HOOK, _BASE_CONTAINERFILE])
    name = f"localhost/python-base:{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if _buildah(folder, "inspect", "--type=image", name, check=False):
        return name
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        rootfs, configuration = Path(work, "rootfs.tar"), Path(work, "apt.conf")
        configuration.write_text("\n".join(_apt_configuration()))
        Path(work, "sources.list").write_text(sources)
        Path(work, "Containerfile").write_text(_BASE_CONTAINERFILE)
        _run(
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={_BASE_PACKAGES}",
            f"--aptopt={configuration}",
            f"--customize-hook={_BASE_HOOK}",
            release,
            str(rootfs),
            f"{work}/sources.list",
        )
        _buildah(folder, "bud", "--isolation=chroot", f"--tag={name}", work)
    print(f"made the base image in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return name


def _apt_configuration() -> Iterator[str]:
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    yield from (line for line in dump.splitlines() if line.startswith(_FETCHING))
    yield 'APT::Sandbox::User "root";'


def _digest(context: Path) -> str:
    """Return a digest of the image's inputs: the Dockerfile and every file that `.dockerignore` allows."""
    found = hashlib.sha256()
    for name in ["Dockerfile", ".dockerignore", *sorted(_lets_in(context))]:
        for path in sorted(_files(context / name)):
            content = path.read_bytes()
            found.update(f"{path.relative_to(context)} {len(content)}\n".encode())
            found.update(content)
    return found.hexdigest()[:16]


def _lets_in(context: Path) -> list[str]:
    return [line[1:] for line in (context / ".dockerignore").read_text().splitlines() if line.startswith("!")]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from (inner for inner in path.rglob("*") if inner.is_file() and "__pycache__" not in inner.parts)
    else:
        raise ClusterError(f"{path} is missing; the image of the manager needs it")


def _forget_old_images(folder: Path) -> None:
    """Keep the newest images and delete the others, here and in buildah's storage."""
    images = sorted(
        (path for path in folder.glob("pykruise-*") if path.is_dir()), key=lambda path: path.stat().st_mtime
    )
    for path in images[:-_KEPT_IMAGES]:
        _buildah(folder, "rmi", f"localhost/{path.name}", check=False)
        shutil.rmtree(path)


def _buildah(folder: Path, *arguments: str, check: bool = True) -> bool:
    """Run buildah with its storage in `folder`, isolated from the machine's."""
    overlay = "overlay" in Path("/proc/filesystems").read_text().split()
    storage = ["--root", str(folder / "storage"), "--runroot", str(folder / "storage-run")]
    driver = ["--storage-driver", "overlay" if overlay else "vfs"]
    return _run("buildah", *storage, *driver, *arguments, check=check)


def _run(*command: str, check: bool = True) -> bool:
    """Run a command; return whether it succeeded. With `check`, raise its output as an error if it fails."""
    done = subprocess.run(
        ["nice", "-n", "10", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if check and done.returncode:
        raise ClusterError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout[-4000:]}")
    return done.returncode == 0


def configuration(layout: Path) -> dict[str, object]:
    """Return the image's configuration: user, environment, entry point."""
    manifest = json.loads(_blob(layout, json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]))
    found: dict[str, object] = json.loads(_blob(layout, manifest["config"]["digest"]))["config"]
    return found


def files(layout: Path) -> set[str]:
    """Return the files of an image, without those that a later layer deletes."""
    manifest = json.loads(_blob(layout, json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]))
    found: set[str] = set()
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(_blob(layout, layer["digest"]))) as archive:
            members = [member.name.removeprefix("./") for member in archive if not member.isdir()]
        for gone in (PurePosixPath(name) for name in members if PurePosixPath(name).name.startswith(".wh.")):
            opaque = gone.name == ".wh..wh..opq"
            path = gone.parent if opaque else gone.with_name(gone.name.removeprefix(".wh."))
            found = {name for name in found if name != str(path) and not name.startswith(f"{path}/")}
        found |= {name for name in members if not PurePosixPath(name).name.startswith(".wh.")}
    return found


def _blob(layout: Path, digest: str) -> bytes:
    return (layout / "blobs" / digest.replace(":", "/")).read_bytes()
