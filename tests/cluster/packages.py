"""The container programs for the nodes, unpacked from Debian's packages into the cache folder.

They are not installed, because installing containerd or docker-registry would also set up and start a system service,
which tests must neither use nor disturb. Only programs that are not services (iptables and those that build images) are
installed if they are missing.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.paths import cache_dir, locked

CONTAINERD = "containerd"
RUNC = "runc"
REGISTRY = "docker-registry"
BUSYBOX = "busybox"

# Package → the required program, and its path in the package.
_PROGRAMS = {
    "containerd": "usr/bin/containerd",
    "runc": "usr/sbin/runc",
    "docker-registry": "usr/bin/docker-registry",
    "busybox-static": "bin/busybox",
    "containernetworking-plugins": "usr/lib/cni/bridge",
}
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def ensure() -> None:
    """Fetch missing packages. Needs Debian (apt), and root to install packages."""
    target = _unpacked_dir()
    with locked(target.with_name(f"{target.name}.lock")):
        if not target.is_dir():
            _unpack_into(target)
        ensure_installed("iptables")


def ensure_installed(*names: str) -> None:
    """Install the packages whose command of the same name is missing."""
    missing = [name for name in names if shutil.which(name, path=search_path()) is None]
    if missing:
        _fetch("install", "--yes", "--no-install-recommends", *missing)


def debian_sources() -> tuple[str, str]:
    """Return the machine's Debian sources as lines of a sources.list, and the name of the release."""
    if not (found := _debian_sources()):
        _apt("update")
        found = _debian_sources()
    if not found:
        raise ClusterError("apt has no source of Debian's packages here (apt-get indextargets), and images need one")
    return "".join(f"deb {uri} {suite} main\n" for uri, suite in found), _release_name()


def _debian_sources() -> list[tuple[str, str]]:
    """Return URI and suite of each source, the release itself first."""
    query = ["--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages", "Origin: Debian", "Component: main"]
    told = subprocess.run(["apt-get", "indextargets", *query], capture_output=True, text=True, check=True).stdout
    release = _release_name()
    suites = (release, f"{release}-updates", f"{release}-security")
    lines = dict.fromkeys(tuple(line.split()) for line in told.splitlines())
    return sorted(((uri, suite) for uri, suite in lines if suite in suites), key=lambda line: line[1] != release)


def program(name: str) -> Path:
    paths = [_unpacked_dir() / path for path in _PROGRAMS.values()]
    for path in paths:
        if path.name == name and path.exists():
            return path
    raise ClusterError(f"{name} has not been fetched; do it with: python -m tests.cluster build")


def cni_plugins() -> Path:
    return (_unpacked_dir() / _PROGRAMS["containernetworking-plugins"]).parent


def search_path() -> str:
    """Return the PATH of the nodes' processes: unpacked packages first, then the machine's."""
    ours = [str(_unpacked_dir() / folder) for folder in ("usr/sbin", "usr/bin", "bin")]
    return os.pathsep.join([*ours, *os.environ.get("PATH", "").split(os.pathsep), *_SYSTEM_FOLDERS])


def _unpacked_dir() -> Path:
    return cache_dir() / f"debian-{_release_name()}"


def _release_name() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    return "unknown"


def _unpack_into(target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ClusterError(
            f"the nodes' programs come from Debian's packages {', '.join(_PROGRAMS)}, and apt is missing"
        )
    unfinished = target.with_name(f"{target.name}.unpacking")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    with tempfile.TemporaryDirectory(dir=target.parent) as downloads:
        _fetch("download", *_PROGRAMS, folder=downloads)
        for package in sorted(Path(downloads).glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", str(package), str(unfinished)], check=True)
    missing = [path for path in _PROGRAMS.values() if not (unfinished / path).exists()]
    if missing:
        raise ClusterError(f"Debian's packages no longer have {', '.join(missing)}: correct tests/cluster/packages.py")
    unfinished.rename(target)


def _fetch(*arguments: str, folder: str | None = None) -> None:
    try:
        _apt(*arguments, folder=folder)
    except ClusterError:
        # A new machine has no package lists, or old lists of files that no longer exist.
        _apt("update")
        _apt(*arguments, folder=folder)


def _apt(*arguments: str, folder: str | None = None) -> None:
    print(f"apt-get {' '.join(arguments)}", file=sys.stderr, flush=True)
    # Download as root, because apt's own user cannot write to the folder; the checksums are verified.
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=300", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"{' '.join(command)} failed ({done.returncode}); see apt's output above")
