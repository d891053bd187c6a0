"""The files of a release: they have the right contents, work, and are identical in a second build."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.release import __main__ as release
from deploy.release import image
from deploy.release.archives import sha256, write_checksums, write_tar
from tests.deploy.rendering import render

#: Commands that need no cluster, and their output.
WITHOUT_CLUSTER = {
    "--version": "pykruise 0.1.0",
    "--help": "rollout",
    "manager --help": "--feature-gates",
    "daemon --help": "--socket-file",
    "plan --help": "--from",
    "completion bash": "complete",
}


def test_archives_depend_on_contents_only(tmp_path: Path) -> None:
    sums = []
    for number, names in enumerate((("b", "a"), ("a", "b"))):
        folder = tmp_path / str(number)
        (folder / "tmp").mkdir(parents=True)
        for name in names:
            (folder / name).write_text(name)
            os.utime(folder / name, (number, number))
        (folder / "a").chmod(0o755 if number else 0o777)
        (folder / "link").symlink_to("a")
        for name in ("plain.tar", "packed.tgz"):
            write_tar(tmp_path / f"{number}-{name}", folder, 1_700_000_000, prefix="x/")
        sums.append([sha256(tmp_path / f"{number}-{name}") for name in ("plain.tar", "packed.tgz")])
    assert sums[0] == sums[1]
    with tarfile.open(tmp_path / "0-plain.tar") as archive:
        found = {one.name: (oct(one.mode), one.uid, one.mtime) for one in archive}
    assert found["x/a"] == ("0o755", 0, 1_700_000_000)
    assert found["x/tmp"][0] == "0o1777"
    assert list(found) == sorted(found)


def test_checksums_are_read_by_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("b")
    (tmp_path / "a").write_text("a")
    write_checksums(tmp_path)
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, capture_output=True)
    assert checked.stdout == b"a: OK\nb: OK\n"


def test_a_program_for_another_processor_is_not_shipped(tmp_path: Path) -> None:
    amd64, arm64 = image.PLATFORMS
    header = bytearray(20)
    header[:4], header[18] = b"\x7fELF", 0xB7
    (tmp_path / "lib.so").write_bytes(header)
    (tmp_path / "text").write_text("no program")
    assert image.check_machine(tmp_path, arm64) == 1
    with pytest.raises(image.ImageError, match=r"lib\.so is not for amd64"):
        image.check_machine(tmp_path, amd64)


def test_the_changelog_section_is_that_of_the_version() -> None:
    text = "# Changes\n\n## 0.2.0\n- [all](docs/a.md) of [it](https://x.example)\n\n## 0.1.0, first\n- old\n"
    assert release.changelog_section(text, "0.2.0") == "## 0.2.0\n- all of [it](https://x.example)\n"
    assert release.changelog_section(text, "0.1.0") == "## 0.1.0, first\n- old\n"
    with pytest.raises(SystemExit, match=r"no section for 0\.3\.0"):
        release.changelog_section(text, "0.3.0")


def test_the_bill_of_materials_lists_each_dependency_once() -> None:
    packages = [image.Package("libc6", "2.36", "amd64"), image.Package("netbase", "6", "all")] * 2
    bill = release.bill_of_materials("1.2.3", 0, {"orjson": "3.13.0"}, packages)
    listed = ["pkg:deb/debian/libc6@2.36?arch=amd64", "pkg:deb/debian/netbase@6?arch=all", "pkg:pypi/orjson@3.13.0"]
    assert [one["purl"] for one in bill["components"]] == bill["dependencies"][0]["dependsOn"] == listed
    assert bill["metadata"]["timestamp"] == "1970-01-01T00:00:00+00:00"
    assert bill == release.bill_of_materials("1.2.3", 0, {"orjson": "3.13.0"}, packages)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a release of HEAD without the image twice, check that both are identical, and return its folder."""
    folders = []
    for number in range(2):
        output, work = tmp_path_factory.mktemp(f"dist-{number}"), tmp_path_factory.mktemp(f"work-{number}")
        release.build(output, work, "HEAD", "https://files.example", with_image=False)
        folders.append(output)
    sums = [(folder / "SHA256SUMS").read_text() for folder in folders]
    assert sums[0] == sums[1]
    return folders[0]


def the_one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.mark.controlplane
def test_the_chart_renders_as_in_the_repository(built: Path) -> None:
    assert render(chart=the_one(built, "kruise-*.tgz")) == render()
    with tarfile.open(the_one(built, "kruise-*.tgz")) as archive:
        assert "kruise/values.schema.json" in archive.getnames()


@pytest.mark.controlplane
def test_the_manifests_hold_what_the_chart_installs(built: Path) -> None:
    with tarfile.open(the_one(built, "*-manifests.tar.gz")) as archive:
        installed = list(yaml.safe_load_all(archive.extractfile("install.yaml")))  # type: ignore[arg-type]
        names = archive.getnames()
    hooks = [one for one in render() if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    assert installed == [one for one in render() if one not in hooks]
    assert len([name for name in names if name.startswith("crds/")]) == 18


@pytest.mark.controlplane
def test_every_command_of_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    """Run the commands through the plugin's archive, which installs the wheel and locked dependencies on first use."""
    archive = the_one(built, "kubectl-kruise-*.tar.gz")
    plugin: dict[str, Any] = yaml.safe_load((built / "kruise.yaml").read_text())
    (platform,) = plugin["spec"]["platforms"]
    assert platform["uri"] == f"https://files.example/{plugin['spec']['version']}/{archive.name}"
    assert platform["sha256"] == sha256(archive)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "store", filter="tar")
    command = tmp_path / "bin" / "kubectl-kruise"
    command.parent.mkdir()
    command.symlink_to(tmp_path / "store" / platform["bin"])
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "KUBECTL_KRUISE_PYTHON": sys.executable,
        "COLUMNS": "200",
    }
    for arguments, text in WITHOUT_CLUSTER.items():
        done = subprocess.run([command, *arguments.split()], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        assert text in done.stdout, arguments
    listed = subprocess.run([command, "--help"], env=environment, capture_output=True, text=True, check=True).stdout
    verbs = re.findall(r"^  ([a-z-]+)  ", listed.partition("Commands:")[2], re.MULTILINE)
    assert {"rollout", "restart", "takeover", "manager", "daemon"} <= set(verbs)
    for verb in verbs:
        done = subprocess.run([command, verb, "--help"], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{verb}: {done.stderr}"
    sandbox = subprocess.run([command, "sandbox"], env=environment, capture_output=True, text=True)
    assert "pip install 'pykruise[sandbox]'" in sandbox.stderr


@pytest.mark.controlplane
def test_the_sdist_has_the_sources_of_the_wheel(built: Path) -> None:
    with tarfile.open(the_one(built, "pykruise-*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "app/dashboard/page.html", "policies/webhooks.yaml"} <= names
