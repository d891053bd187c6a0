"""The parts of the test cluster that can be tested without starting one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import binaries, images, network
from tests.cluster.credentials import Identity, write_kubeconfig, write_token_file
from tests.cluster.errors import ClusterError
from tests.cluster.images import Image
from tests.cluster.paths import SOURCE
from tests.cluster.process import ProcessId, end, start, tail, wait_until
from tests.cluster.run import Run, clean_stale_runs, remove_meanwhile
from tests.cluster.sharing import GUIDES, group


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder, isolated from the user's."""
    monkeypatch.setenv("PYKRUISE_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("KUBERNETES", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "repository", "tag"),
    [
        ("nginx", "library/nginx", "latest"),
        ("nginx:1.25", "library/nginx", "1.25"),
        ("docker.io/nginx:1.25", "library/nginx", "1.25"),
        ("docker.io/library/nginx:1.25", "library/nginx", "1.25"),
        ("envoyproxy/envoy:v1.30", "envoyproxy/envoy", "v1.30"),
        ("registry.k8s.io/pause:3.10", "pause", "3.10"),
        ("localhost:5000/a/b/c", "a/b/c", "latest"),
        ("localhost/a", "a", "latest"),
    ],
)
def test_an_image_is_stored_where_a_node_will_ask_for_it(reference: str, repository: str, tag: str) -> None:
    assert (Image(reference).repository, Image(reference).tag) == (repository, tag)


def test_an_image_reference_needs_a_tag() -> None:
    with pytest.raises(ClusterError, match="specify a tag, not a digest"):
        _ = Image("nginx@sha256:00").tag


def test_images_share_the_base_layer_and_differ_in_their_own(tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF".ljust(18, b"\0") + b"\x3e\0" + b"program")
    one, two = (images.build(Image(f"nginx:{tag}", port=80), busybox) for tag in ("1", "2"))
    assert one.blobs[1] == two.blobs[1]
    assert one.blobs[2] != two.blobs[2]
    assert one.manifest != two.manifest
    assert images.build(Image("nginx:1", port=80), busybox) == one
    config = json.loads(one.blobs[0])
    assert config["architecture"] == "amd64"
    assert "PORT=80" in config["config"]["Env"]
    assert [layer["digest"] for layer in json.loads(one.manifest)["layers"]] == config["rootfs"]["diff_ids"]


def test_commands_come_from_kubebuilder_assets_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert binaries.find("etcd") is None
    for folder in (binaries.built_dir(), cache / "assets"):
        folder.mkdir()
        (folder / "etcd").touch(mode=0o755)
    assert binaries.find("etcd") == binaries.built_dir() / "etcd"
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(cache / "assets"))
    assert binaries.find("etcd") == cache / "assets" / "etcd"
    assert binaries.ensure("etcd") == {"etcd": cache / "assets" / "etcd"}


@pytest.mark.usefixtures("cache")
def test_without_go_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterError, match=r"install Go 1\.24 or newer"):
        binaries.ensure("etcd")


def test_a_failed_build_leaves_no_commands(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = cache / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    with pytest.raises(ClusterError, match="failed"):
        binaries.build()
    assert not binaries.built_dir().exists()


# Answers `go mod download -json` with a published module; the commands it builds are copies of the go.mod.
GO = """#!/bin/sh
case $1 in
mod) echo '{{"GoMod": "{folder}/published.mod", "Dir": "{folder}"}}' ;;
build)
  while [ "$1" != -o ]; do shift; done
  cp go.mod "$2" && chmod +x "$2" && echo built >> {folder}/builds ;;
esac
"""


def test_another_version_is_built_from_its_own_module_and_cached_separately(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "published.mod").write_text(
        "module k8s.io/kubernetes\ngo 1.22\nrequire k8s.io/api v0.0.0\nreplace k8s.io/api => ./staging/src/k8s.io/api\n"
    )
    (cache / "go.sum").touch()
    go = cache / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO.format(folder=cache))
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    pinned = binaries.built_dir()
    pinned.mkdir()
    for name in ("etcd", "kubelet"):
        (pinned / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(pinned))  # not the version selected below
    monkeypatch.setenv("KUBERNETES", "1.30.14")
    built = cache / "kubernetes-v1.30.14" / "kubelet"
    for _ in range(2):
        assert binaries.ensure("etcd", "kubelet") == {"etcd": pinned / "etcd", "kubelet": built}
    assert (cache / "builds").read_text() == "built\n"
    assert built.read_text() == (
        "module pykruise.test/kubernetes\ngo 1.22\nrequire k8s.io/api v0.0.0\n"
        "replace k8s.io/api => k8s.io/api v0.30.14\n\nrequire k8s.io/kubernetes v1.30.14\n"
    )
    monkeypatch.setenv("KUBERNETES", binaries.pinned_version().removeprefix("v"))
    assert binaries.ensure("kubelet") == {"kubelet": pinned / "kubelet"}


@pytest.mark.parametrize("named", ["1.30", "1.30.x", "latest", "1.30.1/../x"])
def test_a_version_must_be_complete(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES", named)
    with pytest.raises(ClusterError, match="give major, minor and patch"):
        binaries.built_dir()


def test_a_process_is_identified_by_its_start_time(tmp_path: Path) -> None:
    process = start(["sleep", "600"], tmp_path / "log", dies_with_us=True)
    try:
        assert process.is_alive()
        assert not ProcessId(process.pid, process.started + 1).is_alive()
    finally:
        end(process)
    assert not process.is_alive()


def test_waiting_ends_early_with_the_log_if_the_process_exits(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(["sh", "-c", "echo no such flag; sleep 0.05; exit 1"], log, dies_with_us=True)
    with pytest.raises(ClusterError, match=r"server ended while waiting until it is ready.*\nno such flag"):
        wait_until(lambda: False, "it is ready", alive={"server": (process, log)})
    end(process)
    assert tail(log) == "no such flag"


def test_the_leftovers_of_a_killed_run_are_removed_by_the_next(cache: Path) -> None:
    code = (
        "import os, signal\n"
        "from tests.cluster.run import Run\n"
        "run = Run.create(None, detached=True)\n"  # detached: its processes do not end on their own
        "print(run.directory, run.start('sleep', ['sleep', '600']).pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=SOURCE.parents[1], stdout=subprocess.PIPE, text=True)
    directory, pid = done.stdout.split()
    left = ProcessId.of(int(pid))
    assert left is not None
    assert Run.load(Path(directory)).is_stale()
    run = Run.create(None, detached=False)
    assert not Path(directory).exists()
    assert not left.is_alive()
    run.destroy()
    assert list(cache.glob("run/*/")) == []


@pytest.mark.usefixtures("cache")
def test_a_run_name_is_unique() -> None:
    run = Run.create("cluster", detached=False)
    with pytest.raises(ClusterError, match="already running"):
        Run.create("cluster", detached=False)
    run.destroy()
    Run.create("cluster", detached=False).destroy()


def test_only_our_chains_and_their_jumps_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = [
        ("nat", ":PREROUTING ACCEPT [0:0]"),
        ("nat", ":DOCKER - [0:0]"),
        ("nat", ":KUBE-SERVICES - [0:0]"),
        ("nat", ":KUBE-OTHERS - [0:0]"),
        ("nat", '-A PREROUTING -m comment --comment "service portals" -j KUBE-SERVICES'),
        ("nat", "-A PREROUTING -j KUBE-OTHERS"),
        ("nat", "-A PREROUTING -j DOCKER"),
        ("nat", "-A KUBE-SERVICES -j RETURN"),
        ("filter", ":FORWARD ACCEPT [0:0]"),
    ]
    monkeypatch.setattr(network, "_saved", lambda command: saved if command == "iptables" else [])
    before = network.Before(sysctls={}, chains=["iptables nat KUBE-OTHERS"])
    assert "".join(network._removal("iptables", before)) == (
        "*nat\n"
        ":KUBE-SERVICES - [0:0]\n"
        '-D PREROUTING -m comment --comment "service portals" -j KUBE-SERVICES\n'
        "-X KUBE-SERVICES\n"
        "COMMIT\n"
    )
    assert "".join(network._removal("ip6tables", before)) == ""


def test_tokens_and_kubeconfigs_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    jane = Identity("jane", ("developers", "operators"))
    tokens, kubeconfig, ca_file = tmp_path / "tokens.csv", tmp_path / "kubeconfig", tmp_path / "ca"
    ca_file.write_text("certificate")
    write_token_file(tokens, [jane], {"jane": "secret"})
    assert tokens.read_text().strip() == 'secret,jane,jane,"developers,operators"'
    write_kubeconfig(kubeconfig, "https://127.0.0.1:1", ca_file, "secret")
    assert json.loads(kubeconfig.read_text())["users"][0]["user"] == {"token": "secret"}
    assert [path.stat().st_mode & 0o777 for path in (tokens, kubeconfig)] == [0o600, 0o600]


@pytest.mark.parametrize("killed", [False, True])
def test_a_large_folder_is_moved_at_once_and_deleted_later(cache: Path, killed: bool) -> None:
    runs = cache / "run"
    large = runs / "cluster"
    (large / "node-0").mkdir(parents=True)
    if killed:  # right after it renamed the folder
        large.rename(runs / ".gone-1-1-abc")
        clean_stale_runs()
    else:
        remove_meanwhile(large)
    assert not large.exists()
    wait_until(lambda: not list(runs.iterdir()), "nothing is left", deadline=20)


def test_tests_of_a_module_share_a_group_except_for_shared_scenarios() -> None:
    assert group("tests/kube/test_a.py::test_a[x::y]") == group("tests/kube/test_a.py::test_b")
    assert group("tests/kube/test_a.py::test_a") != group("tests/kube/test_b.py::test_a")
    assert group(f"{GUIDES}::test_a_guide_can_be_followed[a]") != group(f"{GUIDES}::test_a_guide_can_be_followed[b]")
    own = "tests/scenarios/test_a.py::test_a"
    assert group(own) == group("tests/scenarios/test_a.py::test_b")
    shared = "tests/scenarios/test_a.py::test_a[simulated-nodes-x]"
    assert group(shared) != group("tests/scenarios/test_a.py::test_b[simulated-nodes-x]")
