"""``pykruise review``: one decision offline."""

import base64
import json
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from app.api import names
from app.cli.main import app
from app.kube.patches import apply
from tests.admission.requests import FIXTURES, recorded
from tests.cli.answers import Answers

SAMPLES = str(Path(__file__).parent.parent.parent / "policies/samples")
POD = str(FIXTURES / "pod-create.json")
POD_MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {generateName: web-, labels: {app: web}}
spec: {containers: [{name: main, image: nginx}]}
"""


def run(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["review", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_a_recorded_review_is_shown_as_a_diff_that_names_the_rules() -> None:
    code, out, err = run(POD, "--policies", SAMPLES)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "CREATE Pod shop/web-0: changed"
    assert lines[1].startswith("  mpod.kb.io: ")
    assert "+   - name: log-shipper   # SS-42 SidecarSet log-shipper" in lines
    assert any(line.startswith("+   annotations:   # SS-56") for line in lines)
    # Unchanged lines have no sign.
    assert "    - name: main" in lines


def test_a_single_change_is_counted_as_such() -> None:
    _, out, _ = run(str(Path(SAMPLES).parent.parent / "docs/guides/examples/cloneset.yaml"))
    assert "  mpod.kb.io: 1 change by PM-176" in out.splitlines()


def test_the_diff_is_colored_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, _ = run(POD, "--policies", SAMPLES)
    assert "\x1b[32m" in out


def test_the_answer_is_available_as_json() -> None:
    code, out, _ = run(POD, "--policies", SAMPLES, "-o", "json")
    response = json.loads(out)["response"]
    assert (code, response["uid"], response["allowed"]) == (0, recorded("pod-create")["request"]["uid"], True)
    operations = json.loads(base64.b64decode(response["patch"]))
    patched = apply(operations, recorded("pod-create")["request"]["object"])
    assert [one["name"] for one in patched["spec"]["containers"]] == ["log-shipper", "main"]


def test_a_manifest_is_reviewed_as_a_creation(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(POD_MANIFEST, "utf-8")
    code, out, _ = run(str(path), "--policies", SAMPLES, "-n", "batch")
    assert code == 0
    assert out.startswith("CREATE Pod batch/web-: changed")
    assert "mesh-proxy" not in out
    assert "mesh-proxy" in run(str(path), "--policies", SAMPLES, "-n", "shop")[1]


def test_without_policies_nothing_matches() -> None:
    code, out, _ = run(POD)
    assert (code, out) == (0, "CREATE Pod shop/web-0: allowed\n  mpod.kb.io: allowed\n")


def test_standard_input_and_several_objects_are_read() -> None:
    text = yaml.safe_dump_all(
        [recorded("sidecarset-create-v1alpha1"), recorded("sidecarset-create-v1beta1"), recorded("pod-create")]
    )
    code, out, _ = run("-", stdin=text)
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("CREATE")] == [
        "CREATE SidecarSet agent-v1alpha1: changed",
        "CREATE SidecarSet agent-v1beta1: changed",
        "CREATE Pod shop/web-0: allowed",
    ]


def test_a_refusal_is_printed_and_sets_the_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "set.yaml"
    path.write_text("apiVersion: apps.kruise.io/v1beta1\nkind: SidecarSet\nmetadata: {name: s}\nspec: {}\n", "utf-8")
    code, out, _ = run(str(path))
    assert code == 1
    assert out.startswith("CREATE SidecarSet s: denied")
    assert "vsidecarset.kb.io: denied (422): " in out
    assert json.loads(run(str(path), "-o", "json")[1])["response"]["allowed"] is False


def test_nulls_and_a_mistyped_old_object_are_read_as_by_the_service(tmp_path: Path) -> None:
    image = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "n"}}
    version = {"group": "apps.kruise.io", "version": "v1beta1"}
    request = {
        "uid": "1",
        "operation": "UPDATE",
        "kind": {**version, "kind": "NodeImage"},
        "resource": {**version, "resource": "nodeimages"},
        "object": {**image, "spec": {"images": {"nginx": None}}},
        "oldObject": {**image, "spec": {"images": {"nginx": 3}}},
    }
    path = tmp_path / "review.json"
    path.write_text(json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))
    code, out, err = run(str(path))
    assert (code, err) == (0, "")
    assert "vnodeimage.kb.io: allowed" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "contains no objects"),
        ("a: [", "is not YAML"),
        ("kind: Pod", "apiVersion and kind: are required"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", "no webhook handles CREATE of"),
        ("{apiVersion: admission.k8s.io/v1beta1, kind: AdmissionReview}", "expected admission.k8s.io/v1, got"),
    ],
)
def test_an_unusable_file_is_reported_in_one_line_with_exit_code_2(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(content, "utf-8")
    code, out, err = run(str(path), "--policies", SAMPLES)
    assert (code, out) == (2, "")
    assert message in err
    assert str(path) in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policies", "FOLDER"], "FOLDER/set.yaml:1: SidecarSet: metadata.name: is required\n"),
        (["--policies", "FOLDER/absent"], "--policies: FOLDER/absent does not exist\n"),
        (["--feature-gates", "Nope=true"], "--feature-gates: unknown feature gate 'Nope'"),
        (["--policies", "FOLDER", "--cluster"], "specify one of --policies and --cluster"),
    ],
)
def test_bad_options_are_reported_and_nothing_is_decided(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text("apiVersion: apps.kruise.io/v1beta1\nkind: SidecarSet\n", "utf-8")
    code, out, err = run(POD, *(one.replace("FOLDER", str(tmp_path)) for one in arguments))
    assert (code, out) == (2, "")
    assert err.startswith(f"pykruise: {message.replace('FOLDER', str(tmp_path))}")
    assert err.count("\n") == 1


def test_a_refusal_with_a_broken_character_is_printed() -> None:
    review = json.loads((FIXTURES / "pod-create.json").read_text("utf-8"))
    order = {"apps.kruise.io/container-launch-priority": '{"\\ud800": 1}'}
    review["request"]["object"]["metadata"]["annotations"] = order
    code, out, _ = run("-", "--policies", SAMPLES, stdin=json.dumps(review))
    assert code == 1
    assert (
        "denied (400): Pod shop/web-0: annotation apps.kruise.io/container-launch-priority: the Pod has no con" in out
    )


CANARY_OF_BASE = f'annotations: {{{names.SIDECARSET_BASE}: base, {names.SIDECARSET_CANARY}: "true"}}'
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: "nginx:1"}]}}
"""


def test_a_workload_shows_its_pods_and_a_folder_all_objects(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(DEPLOYMENT, "utf-8")
    (tmp_path / "a.yml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n", "utf-8")
    (tmp_path / "notes.txt").write_text("not: read", "utf-8")
    code, out, _ = run(str(tmp_path), "--policies", SAMPLES)
    assert code == 0
    titles = [line for line in out.splitlines() if line.startswith("CREATE ")]
    assert titles[-1] == "CREATE Pod shop/web-: changed"
    rule = "    SS-56: An annotation of the Pod contains the sorted names of all sets applied to it."
    assert rule in out.splitlines()
    assert "log-shipper" in out


@pytest.mark.parametrize("files", [("1.yaml", "2.yaml"), ("2.yaml", "1.yaml")])
def test_policies_do_not_depend_on_file_names(files: tuple[str, str], tmp_path: Path) -> None:
    """A canary needs its base SidecarSet, in whatever file that is."""
    container = "containers: [{name: c, image: a}]"
    base = f"metadata: {{name: base}}\nspec: {{selector: {{matchLabels: {{app: web}}}}, {container}}}\n"
    canary = (
        f"metadata: {{name: canary, {CANARY_OF_BASE}}}\n"
        "spec: {selector: {matchLabels: {app: web, track: canary}}, updateStrategy: {type: NotUpdate}, "
        f"{container}}}\n"
    )
    head = "apiVersion: apps.kruise.io/v1beta1\nkind: SidecarSet\n"
    folder = tmp_path / "policies"
    folder.mkdir()
    for name, text in zip(files, (base, canary), strict=True):
        (folder / name).write_text(head + text, "utf-8")
    file = tmp_path / "web.yaml"
    file.write_text(DEPLOYMENT, "utf-8")
    code, _, err = run(str(file), "--policies", str(folder))
    assert (code, err) == (0, "")


SIDECAR_SET = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: log, uid: u, resourceVersion: "7", managedFields: [{manager: kubectl}]}
spec:
  selector: {matchLabels: {app: web}}
  namespaceSelector: {matchLabels: {team: a}}
  containers: [{name: log-agent, image: "agent:7"}]
status: {matchedPods: 3}
"""


@pytest.mark.parametrize(("team", "title"), [("a", "changed"), ("b", "allowed")])
def test_reviews_use_the_sets_and_namespaces_of_a_cluster(team: str, title: str, tmp_path: Path) -> None:
    listed = {"metadata": {"resourceVersion": "9"}}
    shop = {"metadata": {"name": "shop", "labels": {"team": team}}, "spec": {}}
    objects = {
        "/api/v1/namespaces": {**listed, "items": [shop]},
        "/apis/apps.kruise.io/v1beta1/sidecarsets": {**listed, "items": [yaml.safe_load(SIDECAR_SET)]},
    }
    file = tmp_path / "web.yaml"
    file.write_text(DEPLOYMENT, "utf-8")
    with closing(Answers(objects)) as server:
        code, out, err = run(str(file), "--cluster", "--kubeconfig", server.kubeconfig(tmp_path))
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("CREATE ")][-1] == f"CREATE Pod shop/web-: {title}"
    assert ("agent:7" in out) == (team == "a")
