"""Build all files of a release: ``python -m deploy.release``."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from deploy.release import image
from deploy.release.archives import sha256, write_checksums, write_tar
from tests.advisories import locked
from tests.cluster.helm import helm

ROOT: Final = Path(__file__).resolve().parents[2]
PLUGIN: Final = Path(__file__).resolve().parents[1] / "krew"
#: Files and folders in deploy/ to apply with kubectl, in addition to the rendered chart.
_MANIFESTS: Final = ("crds", "rbac-gates", "rbac.yaml", "deletion-protection-policies.yaml")
_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release", description=__doc__)
    parser.add_argument("--commit", default="HEAD", help="what to build (%(default)s); changes after it are left out")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder to write (%(default)s)")
    parser.add_argument(
        "--url",
        default="https://releases.example/pykruise",
        help="where the files of all releases will be (%(default)s)",
    )
    parser.add_argument("--without-image", action="store_true", help="leave out the image")
    options = parser.parse_args(arguments)
    os.umask(0o022)
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="pykruise-release-") as work:
        build(options.output.resolve(), Path(work), options.commit, options.url, with_image=not options.without_image)
    print((options.output / "SHA256SUMS").read_text(), end="")
    return 0


def build(output: Path, work: Path, commit: str, url: str, *, with_image: bool = True) -> None:
    """Write the files of a release to ``output``."""
    source = work / "source"
    epoch = write_source(source, commit)
    version: str = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    wheel = write_packages(output, work, source, epoch)
    chart = write_chart(output, source, version, epoch)
    write_manifests(output / f"kruise-{version}-manifests.tar.gz", work / "manifests", source, chart, epoch)
    write_plugin(output, work / "plugin", source, wheel, version, epoch, f"{url}/v{version}")
    changes = changelog_section((source / "CHANGELOG.md").read_text("utf-8"), version)
    (output / f"pykruise-{version}-changes.md").write_text(changes, "utf-8")
    packages = list[image.Package]()
    if with_image:
        target = output / f"pykruise-{version}-image.tar"
        packages = image.build(target, work / "image", source, wheel, version, epoch)
    lock = (source / "requirements.lock").read_text("utf-8")
    bill = bill_of_materials(version, epoch, locked(lock), packages)
    (output / f"pykruise-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", "utf-8")
    write_checksums(output)


def write_source(source: Path, commit: str) -> int:
    """Write the files of a commit. Returns its date in seconds since 1970."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
        archive.extractall(source, filter="data")
    return int(_git("show", "--no-patch", "--format=%ct", f"{commit}^{{commit}}"))


def write_packages(output: Path, work: Path, source: Path, epoch: int) -> Path:
    """Write the wheel and the sdist. Returns the wheel."""
    made = work / "packages"
    build = [sys.executable, "-m", "build", "--no-isolation", f"--outdir={made}", str(source)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(build, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"python -m build failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    (sdist,) = made.glob("*.tar.gz")
    # Repack the sdist, because setuptools writes the owner and the build time into it.
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "sdist", filter="data")
    write_tar(output / sdist.name, work / "sdist", epoch)
    (wheel,) = made.glob("*.whl")
    return Path(shutil.copy(wheel, output))


def write_chart(output: Path, source: Path, version: str, epoch: int) -> Path:
    """Write the chart, with the file name that `helm package` uses."""
    chart = output / f"kruise-{version}.tgz"
    write_tar(chart, source / "deploy/chart", epoch, prefix="kruise/")
    return chart


def write_manifests(target: Path, work: Path, source: Path, chart: Path, epoch: int) -> None:
    """Write the chart rendered with default values, and the manifests for an installation without Helm."""
    work.mkdir()
    for name in _MANIFESTS:
        path = source / "deploy" / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, work / name)
    rendered = helm("template", "kruise", str(chart), "--no-hooks").stdout
    (work / "install.yaml").write_text(rendered, "utf-8")
    write_tar(target, work, epoch)


def write_plugin(output: Path, work: Path, source: Path, wheel: Path, version: str, epoch: int, url: str) -> None:
    """Write the archive of `kubectl kruise` and its krew manifest."""
    work.mkdir()
    for path in (PLUGIN / "kubectl-kruise", wheel, source / "requirements.lock", source / "LICENSE"):
        shutil.copy(path, work)
    archive = output / f"kubectl-kruise-{version}.tar.gz"
    write_tar(archive, work, epoch)
    values = {"version": version, "url": url, "archive": archive.name, "sha256": sha256(archive)}
    (output / "kruise.yaml").write_text((PLUGIN / "kruise.yaml").read_text("utf-8").format(**values), "utf-8")


def changelog_section(text: str, version: str) -> str:
    """Return the changes of a version. Links into the repository become plain text."""
    found = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no section for {version}")
    return _LINK.sub(r"\1", found[0]).strip() + "\n"


def bill_of_materials(
    version: str, epoch: int, dependencies: dict[str, str], packages: Iterable[image.Package]
) -> dict[str, Any]:
    """Return a CycloneDX document of the locked dependencies and the image's Debian packages."""
    urls = [(name, number, f"pkg:pypi/{name}@{number}") for name, number in dependencies.items()]
    for one in packages:
        urls.append((one.name, one.version, f"pkg:deb/debian/{one.name}@{one.version}?arch={one.architecture}"))
    parts = {
        url: {"type": "library", "bom-ref": url, "name": name, "version": number, "purl": url}
        for name, number, url in urls
    }
    own = f"pkg:pypi/pykruise@{version}"
    described = {"type": "application", "bom-ref": own, "name": "pykruise", "version": version, "purl": own}
    components = [parts[url] for url in sorted(parts)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(),
            "component": described | {"licenses": [{"license": {"id": "Apache-2.0"}}]},
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": sorted(parts)}],
    }


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
