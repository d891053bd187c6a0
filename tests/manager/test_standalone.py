"""Standalone mode: objects from files, errors with file and line, the last valid contents are kept."""

import asyncio
import errno
import itertools
import json
import os
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from app.admission.review import read_review
from app.features.sidecarset.pod_admission import RECORDED_REVISIONS, SIDECAR_SETS, InjectionLookups
from app.framework.watched import CONFIGURATION, NAMESPACES
from app.kube.admission import Allowed, Denied, Patched, Review
from app.kube.patches import apply
from app.manager.gates import parse_gates
from app.manager.standalone import Standalone
from tests.admission.requests import review_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, until, virtual

SAMPLES = Path(__file__).parent.parent.parent / "policies/samples"

HASH = "kruise.io/sidecarset-hash"

SET = """\
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata:
  name: {name}
spec:
  selector:
    matchLabels: {{app: web}}
  containers:
  - name: {name}-agent
    image: agent:1
"""


def standalone(path: Path | None, gates: str = "") -> Standalone:
    return Standalone(path, parse_gates(gates), VirtualClock(), Random(1))


async def loaded(path: Path, gates: str = "") -> Standalone:
    found = standalone(path, gates)
    await found.reload()
    return found


def pod_review(**changed: Any) -> Review:
    found = read_review(review_of("pod-create", **changed))
    assert isinstance(found, Review)
    return found


async def injected(found: Standalone, review: Review | None = None) -> list[str]:
    """Return the names of the containers that the recorded Pod gets."""
    (_, decision), *_ = (await found.decide(review or pod_review()))[0]
    return added(decision)


def added(decision: Allowed | Patched | Denied) -> list[str]:
    assert not isinstance(decision, Denied), decision.message
    names = []
    for operation in decision.operations if isinstance(decision, Patched) else ():
        if operation.path.startswith(("/spec/containers", "/spec/initContainers")):
            value = orjson.loads(orjson.dumps(operation.value))
            names += [one["name"] for one in (value if isinstance(value, list) else [value])]
    return names


_times = itertools.count(1_000_000)


def touch(path: Path, text: str) -> None:
    """Write a file and make sure that its modification time changes."""
    path.write_text(text, "utf-8")
    time = next(_times)
    os.utime(path, (time, time))


@virtual
async def test_a_namespace_without_file_has_its_name_as_label() -> None:
    found = standalone(None)
    lookups = InjectionLookups(found.stores(NAMESPACES), found.stores(RECORDED_REVISIONS), None, "kruise-system")
    assert lookups.namespace_labels("anywhere") is None
    assert await lookups.live_namespace_labels("anywhere") == {"kubernetes.io/metadata.name": "anywhere"}


@virtual
async def test_objects_are_defaulted_and_hashed_as_on_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SET.format(name="a"), "utf-8")
    found = await loaded(tmp_path)
    stored = found.stores(SIDECAR_SETS).list()[0]
    assert stored.spec.update_strategy.max_unavailable == 1
    assert "kruise.io/sidecarset-hash" in stored.metadata.annotations
    assert stored.metadata.uid
    assert stored.metadata.resource_version


@virtual
async def test_v1alpha1_is_converted(tmp_path: Path) -> None:
    text = SET.format(name="a").replace("v1beta1", "v1alpha1").replace("spec:\n", "spec:\n  namespace: shop\n")
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    found = await loaded(tmp_path)
    assert found.problems == ()
    assert found.stores(SIDECAR_SETS).list()[0].api_version == "apps.kruise.io/v1beta1"
    assert await injected(found) == ["a-agent"]
    there = pod_review()
    elsewhere = {**there.object, "metadata": {**there.object["metadata"], "namespace": "x"}}
    assert await injected(found, replace(there, namespace="x", object=elsewhere)) == []


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("image:", "imagee:"), 9, "SidecarSet a: spec.containers[0].image: Required value"),
        (("  selector:", "  selektor:"), 6, "SidecarSet a: spec.selektor: unknown field"),
        (("matchLabels: {app: web}", "matchLabels: {}"), 6, "SidecarSet a: spec.selector: "),
        (("image: agent:1", "image: 5"), 10, "SidecarSet a: spec.containers[0].image: "),
        (("apps.kruise.io/v1beta1", "apps.kruise.io/v7"), 1, "SidecarSet a: apiVersion: served versions are "),
        (("  name: a\n", "  labels: {}\n"), 3, "SidecarSet: metadata.name: is required"),
        (("kind: SidecarSet\n", ""), 1, "apiVersion and kind: are required"),
        (("    matchLabels", "   matchLabels: {}\n    matchLabels"), 8, "is not YAML: "),
    ],
    ids=["no image", "unknown field", "no selector", "wrong type", "version", "no name", "no kind", "no yaml"],
)
@virtual
async def test_an_error_in_a_file_has_its_line(
    change: tuple[str, str], line: int, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.yaml").write_text(SET.format(name="a").replace(*change), "utf-8")
    found = await loaded(tmp_path)
    (problem,) = found.problems
    where, _, rest = problem.partition(": ")
    assert rest.startswith(message)
    assert where == f"{tmp_path}/a.yaml:{line}"
    assert problem in caplog.text
    assert len(found.stores(SIDECAR_SETS)) == 0


@virtual
async def test_an_invalid_file_keeps_its_last_good_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.yaml"
    touch(path, SET.format(name="a"))
    found = await loaded(tmp_path)
    touch(path, SET.format(name="a").replace("selector", "selektor"))
    assert await found.reload()
    assert "keeping its last valid contents" in caplog.text
    assert await injected(found) == ["a-agent"]
    touch(tmp_path / "b.yaml", SET.format(name="b").replace("b-agent", "a-agent"))
    await found.reload()
    assert found.problems[1].startswith(f"{tmp_path}/b.yaml:")
    assert "container a-agent already exist in a" in found.problems[1]
    (tmp_path / "b.yaml").unlink()
    touch(path, SET.format(name="a").replace("a-agent", "b-agent"))
    assert await found.reload()
    assert found.problems == ()
    assert await injected(found) == ["b-agent"]


@virtual
async def test_added_and_removed_files_are_noticed_within_a_second(tmp_path: Path) -> None:
    found = await loaded(tmp_path)
    async with running(found.watch()):
        touch(tmp_path / "a.yaml", SET.format(name="a"))
        await until(lambda: len(found.stores(SIDECAR_SETS)) == 1, seconds=1.5)
        (tmp_path / "more").mkdir()
        touch(tmp_path / "more/b.json", '{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "n"}}')
        await until(lambda: "1 Namespaces" in found.summary, seconds=1.5)
        (tmp_path / "c.json").write_text((tmp_path / "more/b.json").read_text())
        await asyncio.sleep(1.5)
        (tmp_path / "more/b.json").unlink()
        (tmp_path / "a.yaml").unlink()
        await until(lambda: len(found.stores(SIDECAR_SETS)) == 0, seconds=1.5)
        assert "1 Namespaces" in found.summary  # of the other file


@virtual
async def test_unchanged_files_are_not_reread(tmp_path: Path) -> None:
    touch(tmp_path / "a.yaml", SET.format(name="a"))
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    found = standalone(tmp_path)
    assert await found.reload()
    assert not await found.reload()


@virtual
async def test_a_file_that_could_not_be_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    touch(tmp_path / "a.yaml", SET.format(name="a"))
    found = standalone(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fails)
        await found.reload()
    assert found.problems == (f"{tmp_path}/a.yaml: cannot be read: Too many open files",)
    await found.reload()
    assert found.problems == ()


@virtual
async def test_duplicate_set_names_are_an_error_that_can_be_fixed(tmp_path: Path) -> None:
    touch(tmp_path / "a.yaml", SET.format(name="same"))
    touch(tmp_path / "b.yaml", SET.format(name="same"))
    found = await loaded(tmp_path)
    assert found.problems == (f"{tmp_path}/b.yaml:4: SidecarSet same is also defined in {tmp_path}/a.yaml",)
    (tmp_path / "a.yaml").unlink()
    await found.reload()
    assert found.problems == ()
    assert len(found.stores(SIDECAR_SETS)) == 1


SPREAD = """\
apiVersion: apps.kruise.io/v1beta1
kind: WorkloadSpread
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{targetRef: {{apiVersion: {api_version}, kind: {kind}, name: web}}, subsets: [{{name: a}}]}}
"""
BUDGET = """\
apiVersion: policy.kruise.io/v1beta1
kind: PodUnavailableBudget
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{maxUnavailable: 1, selector: {{matchLabels: {{app: web}}}}}}
"""
CLONE_SET = {"api_version": "apps.kruise.io/v1beta1", "kind": "CloneSet"}


@virtual
@pytest.mark.parametrize("text", [SPREAD, BUDGET], ids=["spreads", "budgets"])
async def test_objects_conflict_only_within_their_namespace(tmp_path: Path, text: str) -> None:
    touch(tmp_path / "a.yaml", text.format(name="one", namespace="shop", **CLONE_SET))
    touch(tmp_path / "b.yaml", text.format(name="two", namespace="bank", **CLONE_SET))
    found = await loaded(tmp_path)
    assert found.problems == ()
    touch(tmp_path / "c.yaml", text.format(name="two", namespace="shop", **CLONE_SET))
    await found.reload()
    (problem,) = found.problems
    assert problem.startswith(f"{tmp_path}/c.yaml:")
    assert "is in conflict with other" in problem
    (tmp_path / "a.yaml").unlink()
    await found.reload()
    assert found.problems == ()


@virtual
async def test_custom_workloads_are_read_from_files(tmp_path: Path) -> None:
    """The ConfigMap serves all kinds that read it."""
    spread = SPREAD.format(name="one", namespace="shop", api_version="example.com/v1", kind="Fleet")
    touch(tmp_path / "b.yaml", spread)
    found = await loaded(tmp_path)
    assert "GroupKind is not permitted" in found.problems[0]
    kinds = '{"workloads":[{"Group":"example.com","Kind":"Fleet"}]}'
    touch(
        tmp_path / "a.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kruise-configuration, namespace: kruise-system}\n"
        f"data:\n  WorkloadSpread_Watch_Custom_Workload_WhiteList: '{kinds}'\n",
    )
    await found.reload()
    assert found.problems == ()


#: Manifests may come from an operator in another namespace, or name none.
OPERATORS = pytest.mark.parametrize("operator", ["kruise-system", "kruise", ""])


@OPERATORS
@virtual
async def test_the_whitelist_is_read_from_files(tmp_path: Path, operator: str) -> None:
    whitelist = '{"rules": [{"allowedAnnotationKeyExprs": ["^example.com/"]}]}'
    touch(
        tmp_path / "0-config.yaml",
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: kruise-configuration, namespace: '{operator}'}}\n"
        f"data:\n  SidecarSet_PatchPodMetadata_WhiteList: '{whitelist}'\n",
    )
    touch(
        tmp_path / "a.yaml",
        SET.format(name="a") + "  patchPodMetadata:\n  - annotations: {example.com/a: b}\n    patchPolicy: Overwrite\n",
    )
    found = await loaded(tmp_path)
    assert found.problems == ()
    touch(tmp_path / "0-config.yaml", "")
    touch(tmp_path / "a.yaml", (tmp_path / "a.yaml").read_text("utf-8"))
    await found.reload()
    assert "whitelist not found" in found.problems[0]


@virtual
async def test_a_second_configuration_is_refused_whatever_its_namespace(tmp_path: Path) -> None:
    """The manager reads the one in its own namespace, which standalone mode does not know."""
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: kruise-configuration, namespace: {}}}\ndata: {{a: '{}'}}\n"
    )
    touch(tmp_path / "a.yaml", text.format("kruise-system", 1))
    touch(tmp_path / "b.yaml", text.format("shop", 2))
    touch(tmp_path / "c.yaml", f"{text.format('one', 3)}---\n{text.format('two', 4)}")
    found = await loaded(tmp_path)
    said = f"ConfigMap kruise-configuration is also defined in {tmp_path}/a.yaml"
    assert found.problems == (f"{tmp_path}/b.yaml:3: {said}", f"{tmp_path}/c.yaml:3: {said}")
    assert [one.data for one in found.stores(CONFIGURATION).list()] == [{"a": "1"}]
    (tmp_path / "a.yaml").unlink()
    (tmp_path / "b.yaml").unlink()
    await found.reload()
    assert found.problems == (f"{tmp_path}/c.yaml:8: {said.replace('a.yaml', 'c.yaml')}",)


@virtual
async def test_revisions_of_other_kinds_are_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: web-1, labels: {app: web}}\nrevision: 1\n"
    touch(tmp_path / "a.yaml", text)
    found = await loaded(tmp_path)
    assert "a.yaml:1: ControllerRevision web-1 is not used without a cluster" in caplog.text
    assert found.stores(RECORDED_REVISIONS).list() == []


@OPERATORS
@virtual
async def test_a_recorded_revision_can_be_selected(tmp_path: Path, operator: str) -> None:
    revision = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "a-1", "namespace": operator, "labels": {"kruise.io/sidecarset-name": "a"}},
        "revision": 1,
        "data": {
            "metadata": {"annotations": dict.fromkeys((HASH, f"{HASH}-without-image"), "h")},
            "spec": {"containers": [{"name": "old-agent", "image": "agent:0"}]},
        },
    }
    touch(tmp_path / "0-revision.json", json.dumps(revision))
    touch(
        tmp_path / "a.yaml",
        SET.format(name="a") + "  injectionStrategy:\n    revision: {revisionName: a-1, policy: Always}\n",
    )
    found = await loaded(tmp_path)
    assert found.problems == ()
    assert await injected(found) == ["old-agent"]


@virtual
async def test_objects_unusable_in_standalone_mode_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    touch(tmp_path / "a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n")
    touch(tmp_path / "b.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")
    touch(tmp_path / "webhooks.yaml", "webhooks: {}\n")
    touch(tmp_path / "README.md", "text")
    found = await loaded(tmp_path)
    assert found.problems == ()
    assert "a.yaml:1: Service web is not used without a cluster" in caplog.text
    assert "b.yaml:1: ConfigMap web is not used without a cluster" in caplog.text
    assert "0 ConfigMap kruise-configuration" in found.summary


@pytest.mark.behaviour("PW-4")
@virtual
async def test_without_the_pod_webhook_pods_are_not_reviewed() -> None:
    found = await loaded(SAMPLES, "PodWebhook=false")
    assert (await found.decide(pod_review()))[0] == []


@virtual
async def test_decisions_build_on_the_changed_object() -> None:
    found = standalone(None)
    review = read_review(review_of("sidecarset-create-v1beta1"))
    assert isinstance(review, Review)
    decided, after = await found.decide(review)
    assert [handler.webhook.name for handler, _ in decided] == ["msidecarset.kb.io", "vsidecarset.kb.io"]
    mutated = decided[0][1]
    assert isinstance(mutated, Patched)
    assert after.object == apply(mutated.operations, review.object)
