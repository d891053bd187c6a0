"""Commands about the rollout of a CloneSet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from app.cli.kinds import known, wanted
from app.cli.main import app
from app.cli.plan import of_pod, planned, whole
from app.cli.rollout import history_text, undone
from app.cli.status import Listing, _shown, show_all, show_status
from app.cli.workload_changes import images_set, restarted, scaled_in, set_paused
from app.features.cloneset.commands import progress_of
from app.features.cloneset.defaults import with_defaults
from app.features.cloneset.types import CloneSet
from app.framework.commands import Commands, Progress
from app.kube.client import Client
from app.kube.errors import CommandError, WrongCommandError
from app.kube.patches import apply, merge_patch
from app.kube.wire import Request, Response
from app.manager.gates import parse_gates
from app.pods.revisions import Create, controller_revision, plan_revision, template_data
from tests.features.cloneset.writing import UID, clone_set, rolling
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, virtual
from tests.pods.apiserver import ApiServer

Json = dict[str, Any]
SET = "/apis/apps.kruise.io/v1beta1/namespaces/shop/clonesets/web"
PODS = "/api/v1/namespaces/shop/pods"
REVISIONS = "/apis/apps/v1/namespaces/shop/controllerrevisions"
WHAT = ["cloneset", "web"]
ENABLED = parse_gates("").enabled
OWNER = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": UID, "controller": True}


class Server(ApiServer):
    """An API server with lists, JSON patches, and dry runs that store nothing."""

    def _answer(self, request: Request) -> Response:
        found = self.objects.get(request.path)
        if request.method == "GET" and found is None:
            items = [obj for path, obj in self.objects.items() if path.rpartition("/")[0] == request.path]
            if items or request.path in (PODS, REVISIONS):
                return json_response(200, {"metadata": {"resourceVersion": "1"}, "items": items})
        body = orjson.loads(request.body) if request.body else None
        if request.method == "PATCH" and found is not None:
            if isinstance(body, list) and "dryRun" not in request.query:  # only for the version that was read
                version = found["metadata"]["resourceVersion"]
                assert body[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            new = apply(body, found) if isinstance(body, list) else merge_patch(found, body)
            if request.query.get("dryRun") == "All":
                return json_response(200, with_defaults(new))
            self.objects[request.path] = new
            return json_response(200, new)
        return super()._answer(request)


def template(image: str) -> Json:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}


def stored(image: str = "nginx:2", status: Mapping[str, Any] | None = None, **spec: Any) -> Json:
    spec.setdefault("updateStrategy", rolling(policy="InPlaceIfPossible"))
    made = with_defaults(clone_set("web", template=template(image), **spec))
    made["metadata"]["generation"] = 2
    return {**made, "status": dict(status)} if status is not None else made


def world(*images: str, status: Mapping[str, Any] | None = None, pods: int = 3, **spec: Any) -> tuple[Server, Client]:
    """A CloneSet with revisions for these images; its Pods have the first."""
    server = Server()
    names = []
    for number, image in enumerate(images, 1):
        create = plan_revision("web", template_data(template(image)), [], 0)
        assert isinstance(create, Create)
        create = Create(create.name, create.label_hash, number, 0, create.data)
        made = json.loads(orjson.dumps(controller_revision(create, "shop", OWNER, labels={}, annotations={})))
        server.put(f"{REVISIONS}/{create.name}", made)
        names.append(create.name)
    for index in range(pods):
        labels = {"app": "web", "controller-revision-hash": names[0]}
        metadata = {"name": f"web-{index}", "namespace": "shop", "labels": labels, "ownerReferences": [OWNER]}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        server.put(f"{PODS}/web-{index}", {"metadata": metadata, "status": ready})
    revisions = {"currentRevision": names[0], "updateRevision": names[-1]}
    server.put(SET, stored(images[-1], {**revisions, **(status or {})}, **spec))
    return server, Client(server, VirtualClock())


@pytest.mark.parametrize(
    "words", [["cloneset", "web"], ["clone/web"], ["CloneSet/web"], ["clonesets.apps.kruise.io", "web"]]
)
def test_a_cloneset_is_named_as_in_kubectl(words: list[str]) -> None:
    commands, name = wanted(words)
    assert (commands.kind.kind, name) == ("CloneSet", "web")


@pytest.mark.parametrize("words", [["web"], ["deploy", "web"], ["cloneset/"], ["cloneset", "a", "b"]])
def test_a_word_that_names_no_cloneset_is_refused(words: list[str]) -> None:
    with pytest.raises(WrongCommandError, match=r"[Kk]ind|KIND|built into Kubernetes"):
        wanted(words)


# --- status


def progress(status: Json | None, **spec: Any) -> Any:
    return progress_of(CloneSet.model_validate(stored(status=status, **spec)))


COUNTS = ("replicas", "updatedReplicas", "updatedAvailableReplicas", "expectedUpdatedReplicas")
DONE = {"observedGeneration": 2, **dict.fromkeys(COUNTS, 3)}


@pytest.mark.parametrize(
    ("status", "spec", "done", "text"),
    [
        (None, {}, False, "waiting for the controller to observe the change"),
        ({**DONE, "observedGeneration": 1}, {}, False, "waiting for the controller to observe the change"),
        (DONE, {}, True, "3 of 3 Pods updated, 3 available"),
        ({**DONE, "updatedAvailableReplicas": 1}, {}, False, "3 of 3 Pods updated, 1 available"),
        (
            {**DONE, "updatedReplicas": 1, "updatedAvailableReplicas": 1, "expectedUpdatedReplicas": 1},
            {},
            True,
            "1 of 1 Pods updated, 1 available; the partition keeps 2 at the old revision",
        ),
        (
            {**DONE, "updatedReplicas": 1, "updatedAvailableReplicas": 1},
            {"updateStrategy": rolling(paused=True)},
            False,
            "1 of 3 Pods updated, 1 available; paused: pykruise rollout resume cloneset web",
        ),
        (
            {**DONE, "updatedReplicas": 0, "updatedAvailableReplicas": 0},
            {"updateStrategy": {"type": "OnDelete"}},
            False,
            "0 of 3 Pods updated, 0 available; OnDelete: Pods are updated when they are deleted",
        ),
    ],
)
@pytest.mark.behaviour("CLI-1")
def test_the_progress_of_a_rollout_is_shown(status: Json | None, spec: Json, done: bool, text: str) -> None:
    found = progress(status, **spec)
    assert (found.done, found.text, found.failed) == (done, text, "")


@virtual
@pytest.mark.behaviour("CLI-1")
async def test_an_exceeded_deadline_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    message = "CloneSet revision web-2 has timed out progressing"
    condition = {"type": "Progressing", "status": "False", "message": message}
    status = {**DONE, "updatedReplicas": 1, "conditions": [condition]}
    assert progress(status).failed == message
    _, client = world("nginx:1", "nginx:2", status=status)
    for output in ("json", "text"):
        assert await show_status(client, "shop", WHAT, watch=True, give_up=0, output=output) is False
    assert capsys.readouterr().out.endswith(f"\nCloneSet shop/web: {message}\n")


@virtual
@pytest.mark.behaviour("CLI-1")
async def test_a_pipe_gets_a_line_per_change_until_the_rollout_completes(capsys: pytest.CaptureFixture[str]) -> None:
    server, client = world("nginx:1", "nginx:2", status={**DONE, "updatedAvailableReplicas": 0})
    watching = asyncio.create_task(show_status(client, "shop", WHAT, watch=True, give_up=60))
    for available in (1, 3):
        await asyncio.sleep(2)
        server.objects[SET] = {**server.objects[SET], "status": {**DONE, "updatedAvailableReplicas": available}}
    assert await watching is True
    assert capsys.readouterr().out.splitlines() == [
        "3 of 3 Pods updated, 0 available",
        "3 of 3 Pods updated, 1 available",
        "3 of 3 Pods updated, 3 available",
        'cloneset "web" successfully rolled out',
    ]


@virtual
@pytest.mark.behaviour("CLI-1")
async def test_the_timeout_is_honored(capsys: pytest.CaptureFixture[str]) -> None:
    _, client = world("nginx:1", status={**DONE, "updatedAvailableReplicas": 0})
    assert await show_status(client, "shop", WHAT, watch=True, give_up=5) is False
    assert "not rolled out within 5 s" in capsys.readouterr().out
    with pytest.raises(CommandError, match="CloneSet shop/api: not found; use -n to specify another namespace"):
        await show_status(client, "shop", ["cloneset", "api"], watch=True, give_up=5)


# --- history, undo, restart, pause


@virtual
@pytest.mark.behaviour("CLI-2")
async def test_history_lists_revisions_and_shows_one() -> None:
    _, client = world("nginx:1", "nginx:2")
    lines = [line.split() for line in (await history_text(client, "shop", WHAT, 0)).splitlines()]
    assert lines[0] == ["REVISION", "NAME", "PODS", "ROLE", "CHANGE-CAUSE"]
    assert [(line[0], line[2], line[3]) for line in lines[1:]] == [("1", "3", "current"), ("2", "0", "update")]
    shown = yaml.safe_load(await history_text(client, "shop", WHAT, 1))
    assert shown["spec"]["containers"][0]["image"] == "nginx:1"
    with pytest.raises(CommandError, match="there is no revision 9; recorded: 1, 2"):
        await history_text(client, "shop", WHAT, 9)
    server, client = world("nginx:1", "nginx:2")
    for path, obj in server.objects.items():
        if path.startswith(REVISIONS):
            obj["data"] = {"made": "by hand"}
    with pytest.raises(CommandError, match=r"ControllerRevision web-[a-z0-9]+ contains no template"):
        await history_text(client, "shop", WHAT, 1)


@virtual
@pytest.mark.behaviour("CLI-3")
async def test_undo_restores_an_earlier_template() -> None:
    server, client = world("nginx:1", "nginx:2")
    said = await undone(client, "shop", WHAT, 0, dry_run=True)
    assert said.startswith("cloneset.apps.kruise.io/web rolled back to revision 1 (web-")
    assert said.endswith("(dry run)")
    assert server.objects[SET]["spec"]["template"] == template("nginx:2")
    await undone(client, "shop", WHAT, 1, dry_run=False)
    assert server.objects[SET]["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1"
    assert "is already the newest" in await undone(client, "shop", WHAT, 2, dry_run=False)
    _, alone = world("nginx:1")
    with pytest.raises(CommandError, match="there is no earlier revision to roll back to"):
        await undone(alone, "shop", WHAT, 0, dry_run=False)


@virtual
@pytest.mark.behaviour("CLI-4")
async def test_restart_replaces_pods_under_any_policy() -> None:
    server, client = world("nginx:1", updateStrategy=rolling())
    assert await restarted(client, "shop", WHAT) == "cloneset.apps.kruise.io/web restarted"
    assert "kubectl.kubernetes.io/restartedAt" in server.objects[SET]["spec"]["template"]["metadata"]["annotations"]
    server, client = world("nginx:1")
    server.objects[f"{PODS}/web-2"]["status"]["phase"] = "Failed"
    said = await restarted(client, "shop", WHAT)
    assert said == "cloneset.apps.kruise.io/web restarted: 2 Pods will be replaced as maxUnavailable allows"
    pod = server.objects[f"{PODS}/web-0"]
    assert pod["metadata"]["labels"]["apps.kruise.io/specified-delete"] == "true"
    _, held = world("nginx:1", updateStrategy=rolling(paused=True))
    with pytest.raises(CommandError, match="is paused; resume it with: pykruise rollout resume cloneset web"):
        await restarted(held, "shop", WHAT)


@virtual
@pytest.mark.behaviour("CLI-5")
async def test_a_rollout_can_be_paused_and_resumed() -> None:
    server, client = world("nginx:1")
    said = [await set_paused(client, "shop", WHAT, paused=paused) for paused in (True, True, False, False)]
    states = ["paused", "is already paused", "resumed", "is not paused"]
    assert said == [f"cloneset.apps.kruise.io/web {state}" for state in states]
    assert server.objects[SET]["spec"]["updateStrategy"]["rollingUpdate"]["paused"] is False
    _, client = world("nginx:1", updateStrategy={"type": "OnDelete"})
    with pytest.raises(CommandError, match="with OnDelete, there is no rollout to pause or resume"):
        await set_paused(client, "shop", WHAT, paused=True)


# --- plan and explain


@virtual
@pytest.mark.behaviour("CLI-6")
async def test_plan_shows_the_effect_of_a_manifest_without_storing_it() -> None:
    strategy = rolling(policy="InPlaceIfPossible", maxUnavailable=2)
    server, client = world("nginx:1", updateStrategy=strategy)
    before = json.dumps(server.objects)
    manifest = clone_set("web", replicas=None, template=template("nginx:2"), updateStrategy=strategy)
    text = (await planned(client, "shop", manifest, ENABLED)).text()
    rows = [line.split(maxsplit=2) for line in text.splitlines()[2:]]
    assert [(row[0], row[1]) for row in rows] == [("1", "web-0"), ("1", "web-1"), ("2", "web-2")]
    assert {row[2] for row in rows} == {"update in place   image of main becomes nginx:2"}
    same = await planned(client, "shop", {**manifest, "spec": stored("nginx:1")["spec"]}, ENABLED)
    assert same.text().splitlines()[1] == "no Pods are affected"
    assert json.dumps(server.objects) == before


@virtual
@pytest.mark.behaviour("CLI-6")
async def test_plan_shows_the_effect_of_a_manifest_while_the_controller_writes_the_status() -> None:
    class Busy(Server):
        def _answer(self, request: Request) -> Response:
            answer = super()._answer(request)
            if (request.method, request.path) == ("GET", SET):
                self.put(SET, {**self.objects[SET], "status": {**self.objects[SET]["status"], "readyReplicas": 1}})
            return answer

    server, _ = world("nginx:1")
    busy = Busy()
    busy.objects = server.objects
    manifest = clone_set("web", template=template("nginx:2"), updateStrategy=rolling(policy="InPlaceIfPossible"))
    text = (await planned(Client(busy, VirtualClock()), "shop", manifest, ENABLED)).text()
    assert "the template changes" in text.splitlines()[0]


@virtual
@pytest.mark.behaviour("CLI-6")
async def test_an_unchanged_template_is_reported_during_a_rollout() -> None:
    _, client = world("nginx:1", "nginx:2")
    for image, said in (("nginx:2", "the template is unchanged"), ("nginx:3", "the template changes")):
        manifest = clone_set("web", template=template(image), updateStrategy=rolling(policy="InPlaceIfPossible"))
        assert said in (await planned(client, "shop", manifest, ENABLED)).text().splitlines()[0]


#: Every kind with a plan.
PLANNED = " or ".join(one.kind.kind for one in known() if one.plan is not None)


def refused(*arguments: str, stdin: str = "") -> str:
    """Run a command that is refused; return its standard error."""
    result = CliRunner().invoke(app, [*arguments, "--kubeconfig", "/there/is/none"], input=stdin)
    assert result.exit_code == 2, result.output
    return result.stderr.strip()


@pytest.mark.behaviour("CLI-6")
@pytest.mark.parametrize(
    ("manifest", "options", "said"),
    [
        ({"spec": {}}, (), "-: the CloneSet has no metadata.name"),
        ({"metadata": {"name": 5}, "spec": {}}, (), "-: the CloneSet has no metadata.name"),
        ({"metadata": {"name": "web"}, "spec": "none"}, (), "-: CloneSet web has no spec"),
        (
            {"metadata": {"name": "web", "namespace": "shop"}, "spec": {}},
            ("-n", "other"),
            "-: the CloneSet is in namespace shop, not other",
        ),
        (
            {"apiVersion": "apps.kruise.io/v9", "metadata": {"name": "web"}, "spec": {}},
            (),
            f"-: expected one {PLANNED}, found CloneSet of apps.kruise.io/v9",
        ),
    ],
)
def test_a_manifest_that_cannot_be_read_is_reported(manifest: Json, options: tuple[str, ...], said: str) -> None:
    given = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", **manifest}
    assert refused("plan", "-f", "-", *options, stdin=json.dumps(given)) == f"pykruise: {said}"


@pytest.mark.behaviour("CLI-7")
def test_only_pods_can_be_explained() -> None:
    assert refused("explain", "service", "one").endswith("or use pod NAME or node NAME")
    expected = "expected KIND NAME or KIND/NAME; or use pod NAME or node NAME"
    assert refused("explain", "pod/") == f"pykruise: explain: pod/: {expected}"
    assert "kubeconfig /there/is/none does not exist" in refused("explain", "pod/web-1")


@virtual
@pytest.mark.behaviour("CLI-7")
async def test_explain_describes_one_pod() -> None:
    server, client = world("nginx:1", "nginx:2")
    text = (await of_pod(client, "shop", "web-1", ENABLED)).text()
    assert text.startswith("Pod shop/web-1 of CloneSet web\nrevision: ")
    assert "next: will be updated in place in step 2 of 3: image of main becomes nginx:2" in text
    with pytest.raises(CommandError, match="Pod shop/api: not found"):
        (await of_pod(client, "shop", "api", ENABLED)).text()
    server.put(f"{PODS}/alone", {"metadata": {"name": "alone", "namespace": "shop"}})
    with pytest.raises(CommandError, match=r"Pod shop/alone: no CloneSet or .* controls it"):
        (await of_pod(client, "shop", "alone", ENABLED)).text()


# --- all kinds


@virtual
@pytest.mark.behaviour("CLI-13", "CLI-12")
async def test_rollouts_of_all_kinds_are_listed() -> None:
    server, client = world("nginx:1", "nginx:2", status={**DONE, "updatedAvailableReplicas": 1})
    listed = "/apis/apps.kruise.io/v1beta1/clonesets"
    for path in (listed, listed.replace("/clonesets", "/namespaces/shop/clonesets")):
        server.put(f"{path}/web", server.objects[SET])
    rows = (await show_all(client, "", [])).text.splitlines()
    assert rows[0].split() == ["NAMESPACE", "KIND", "NAME", "STATE", "PROGRESS", "DETAILS"]
    assert rows[1].split()[:6] == ["shop", "CloneSet", "web", "under", "way", "33%"]
    (one,) = json.loads((await show_all(client, "shop", ["clone"], output="json")).text)["items"]
    assert (one["kind"], one["state"], one["updated"], one["available"]) == ("CloneSet", "under way", 3, 1)
    assert await show_all(client, "shop", ["sts"]) == Listing("no workloads in namespace shop")
    with pytest.raises(CommandError, match=r"has no rollout$"):
        await show_all(client, "shop", ["workloadspread"])


@virtual
@pytest.mark.behaviour("CLI-14", "CLI-18")
async def test_a_stuck_rollout_is_reported_with_its_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    server, client = world("nginx:1", "nginx:no", status={**DONE, "updatedAvailableReplicas": 0}, pods=5)
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff"}}, "name": "main", "image": "nginx:no"}
    for path, obj in server.objects.items():
        if path.startswith(PODS):
            obj["spec"] = {"containers": [{"name": "main", "image": "nginx:no"}], "nodeName": "node-1"}
            obj["status"] = {"phase": "Pending", "containerStatuses": [waiting]}
    assert await show_status(client, "shop", WHAT, watch=True, give_up=5) is False
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 of 3 Pods updated, 0 available"
    why = "image nginx:no of container main cannot be pulled (ImagePullBackOff)"
    assert lines[1] == f"{lines[0]}; web-0, web-1, web-2 and 2 more: {why}"
    assert lines[2:] == ["CloneSet shop/web: not rolled out within 5 s"]
    assert await show_status(client, "shop", WHAT, watch=False, give_up=0, output="json") is True
    assert json.loads(capsys.readouterr().out)["reasons"] == f"web-0, web-1, web-2 and 2 more: {why}"
    found = await whole(client, wanted(WHAT)[0], "shop", "web", ENABLED)
    assert found.rows[0][2:] == ("not ready", why)
    assert found.todo == ["correct the image of main in the template, or add an image pull secret"]


def test_on_creation_more_pods_than_the_partition_are_updated() -> None:
    found = progress({**DONE, "expectedUpdatedReplicas": 1})
    assert found.text == "3 of 3 Pods updated (the partition requires 1), 3 available"
    assert found.part == 1.0


@virtual
@pytest.mark.behaviour("CLI-15")
async def test_images_are_set_by_container() -> None:
    server, client = world("nginx:1")
    said = await images_set(client, "shop", ["clone/web", "main=nginx:7"], dry_run=True)
    assert said == "cloneset.apps.kruise.io/web image updated (dry run)"
    assert server.objects[SET]["spec"]["template"] == template("nginx:1")
    await images_set(client, "shop", ["clone/web", "main=nginx:7"])
    assert server.objects[SET]["spec"]["template"] == template("nginx:7")
    assert "already has these images" in await images_set(client, "shop", ["clone", "web", "*=nginx:7"])
    with pytest.raises(CommandError, match="has no container side; it has main"):
        await images_set(client, "shop", ["clone/web", "side=a"])


@virtual
@pytest.mark.behaviour("CLI-16")
async def test_named_pods_are_scaled_in_with_the_replicas() -> None:
    server, client = world("nginx:1", replicas=3)
    said = await scaled_in(client, "shop", WHAT, ["web-0,web-2"])
    assert said == "cloneset.apps.kruise.io/web scaled in to 1 replicas: web-0, web-2 will be deleted"
    spec = server.objects[SET]["spec"]
    assert (spec["replicas"], spec["scaleStrategy"]["podsToDelete"]) == (1, ["web-0", "web-2"])
    # A line is counted once.
    await scaled_in(client, "shop", WHAT, ["web-2"])
    assert server.objects[SET]["spec"]["replicas"] == 1
    with pytest.raises(CommandError, match="CloneSet web: has no Pod web-9"):
        await scaled_in(client, "shop", WHAT, ["web-9"])


@virtual
@pytest.mark.behaviour("CLI-12")
async def test_a_client_side_dry_run_stores_nothing() -> None:
    server, _ = world("nginx:1", updateStrategy=rolling())
    trying = Client(server, VirtualClock(), dry_run=True)
    before = json.dumps(server.objects[SET])
    assert await restarted(trying, "shop", WHAT) == "cloneset.apps.kruise.io/web restarted"
    assert await set_paused(trying, "shop", WHAT, paused=True) == "cloneset.apps.kruise.io/web paused"
    assert json.dumps(server.objects[SET]) == before


@pytest.mark.parametrize("one", [one for one in known() if one.pausable and one.paused_in is None])
def test_pausing_sets_the_field_of_the_kind(one: Commands) -> None:
    (found,) = (version.schema for version in one.kind.versions if version.name == one.kind.resource().version)
    for key in (*one.paused_at, "paused"):
        found = found["properties"][key]
    assert found["type"] == "boolean"


@pytest.mark.behaviour("CLI-18")
def test_a_terminal_gets_a_progress_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with _shown("text", {}, watch=True) as show:
        show(Progress(1, 1, 2, False, "", "1 of 2 Pods updated"), "")
        show(Progress(2, 2, 2, True, "", "2 of 2 Pods updated"), "")
    said = capsys.readouterr().out
    assert "━" in said
    assert "100%" in said
    assert "2 of 2 Pods updated" in said
