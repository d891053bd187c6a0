"""Pulling the images of a NodeImage and reporting progress in its status."""

from __future__ import annotations

import base64
import json
import logging
import re
from random import Random

import pytest

from app.daemon.credentials import Credential, Entry, credentials
from app.daemon.cri.types import CriError
from app.daemon.image_plan import BACKOFF_LIMIT, TIMEOUT_SECONDS, joined
from app.daemon.image_puller import SecretCache
from app.daemon.objects import NODE_IMAGES, SecretReference
from app.features.imagepull import defaults
from app.kube.resources import SECRETS as SECRET
from tests.daemon.node import NAMESPACE, NODE, Agent, Node, node_with_agent, on_bare_node, on_node, tag
from tests.kube.fakes import running, virtual


def config_json(**users: str) -> dict[str, str]:
    return auths(**{name: {"auth": base64.b64encode(user.encode()).decode()} for name, user in users.items()})


def auths(**entries: dict[str, str]) -> dict[str, str]:
    """Return the data of a Secret with these registries; ``_`` in names stands for ``.``."""
    return data_of(json.dumps({"auths": {name.replace("_", "."): one for name, one in entries.items()}}).encode())


def data_of(config: bytes) -> dict[str, str]:
    return {".dockerconfigjson": base64.b64encode(config).decode()}


SECRETS = [{"namespace": NAMESPACE, "name": "registry"}]


@pytest.mark.behaviour("KD-30", "KD-32", "KD-35", "KD-40", "KD-41")
@on_node
async def test_a_tag_is_pulled_and_reported(one: Node, agent: Agent) -> None:
    sandbox = {"labels": {"app": "web"}, "annotations": {"a": "b"}}
    await one.node_image(nginx={"tags": [tag("1.27")], "sandboxConfig": sandbox})
    tags = await one.pulled("nginx", **{"1_27": "Succeeded"})
    image = one.runtime.add_image("nginx:1.27")
    assert tags["1.27"].items() >= {"progress": 100, "imageID": f"nginx@{image.id}"}.items()
    assert tags["1.27"]["startTime"] <= tags["1.27"]["completionTime"]
    annotations = {"a": "b", "apps.kruise.io/pulling-image-by": "kruise-daemon"}
    assert one.runtime.pulls == [("nginx:1.27", "", {"app": "web"}, annotations)]
    status = await one.status(NODE_IMAGES)
    assert [status[key] for key in ("desired", "succeeded", "failed", "pulling", "waiting")] == [1, 1, 0, 0, 0]
    events = await one.until(lambda: one.events("PullImageSucceed"))
    assert re.fullmatch(r"PullImageSucceed: Image nginx:1\.27, ecalpsedTime [\d.]+(s|ms|µs)", events[0])


@pytest.mark.behaviour("KD-33", "IMG-100")
@on_bare_node
async def test_a_present_image_is_pulled_only_with_policy_always(one: Node) -> None:
    digest = "sha256:" + "1" * 64
    one.runtime.add_image("nginx:1")
    one.runtime.add_image(f"nginx@{digest}")
    tags = [tag("1", imagePullPolicy="IfNotPresent"), tag(digest, imagePullPolicy="IfNotPresent")]
    await one.node_image(nginx={"tags": tags})
    async with running(one.agent().run()):
        await one.pulled("nginx", **{"1": "Succeeded", digest: "Succeeded"})
        assert one.runtime.pulls == []
        await one.node_image(nginx={"tags": [tag("1", 1), tag(digest, 1)]})
        await one.until(lambda: len(one.runtime.pulls) == 2)
        assert {pull[0] for pull in one.runtime.pulls} == {"nginx:1", f"nginx@{digest}"}


@pytest.mark.behaviour("KD-32", "KD-34", "KD-41")
@pytest.mark.parametrize(
    ("error", "attempts", "message"),
    [
        (CriError("not found"), [0, 1, 3, 7], "not found"),
        (CriError("x" * 2000), [0, 1, 3, 7], "x" * 1023 + "…"),
        (CriError("<" * 2000), [0, 1, 3, 7], "<" * 181),
        (RuntimeError("a bug"), [0], "pulling failed unexpectedly; see the log of the node agent"),
    ],
)
@on_node
async def test_a_failed_pull_is_retried_up_to_the_limit_and_reported(
    one: Node, agent: Agent, error: Exception, attempts: list[int], message: str
) -> None:
    began: list[float] = []

    async def pull(*_: object) -> None:
        began.append(one.clock.monotonic())
        raise error

    one.runtime.pull = pull  # type: ignore[method-assign]
    owner = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "namespace": NAMESPACE, "uid": "u"}
    owners = [{**owner, "name": f"job-{number}"} for number in range(25)]
    await one.node_image(nginx={"tags": [tag("gone", policy={"backoffLimit": 3}, ownerReferences=owners)]})
    tags = await one.pulled("nginx", gone="Failed")
    assert [round(at - began[0]) for at in began] == attempts
    assert (tags["gone"]["message"], tags["gone"]["completionTime"] != "") == (message, True)

    async def told() -> int:
        return len(await one.events("PullImageFailed"))

    await one.becomes(told, 21)  # twenty of the jobs, and the NodeImage
    assert agent.puller.pulls == {}


@pytest.mark.behaviour("KD-34")
def test_the_agent_assumes_the_defaults_that_the_webhook_sets() -> None:
    assert (TIMEOUT_SECONDS, BACKOFF_LIMIT) == (defaults.TIMEOUT_SECONDS, defaults.BACKOFF_LIMIT)


@pytest.mark.behaviour("KD-34")
@on_node
async def test_attempts_and_the_whole_pull_have_timeouts(one: Node, agent: Agent) -> None:
    one.runtime.registry.default_seconds = 1000
    slow = tag("slow", policy={"timeoutSeconds": 10, "backoffLimit": 0})
    late = tag("late", policy={"timeoutSeconds": 10, "backoffLimit": 50, "activeDeadlineSeconds": 30})
    await one.node_image(nginx={"tags": [late, slow]})
    tags = await one.pulled("nginx", slow="Failed", late="Failed")
    assert tags["slow"]["message"] == "pulling image nginx:slow is canceled"
    assert tags["late"]["message"] == "pulling exceeds the activeDeadlineSeconds"
    assert one.runtime.active_pulls == 0


@pytest.mark.behaviour("KD-31")
@on_node
async def test_a_withdrawn_pull_stops_and_a_new_version_starts_over(one: Node, agent: Agent) -> None:
    one.runtime.registry.default_seconds = 50
    await one.node_image(nginx={"tags": [tag("1"), tag("2")]})
    await one.pulled("nginx", **{"1": "Pulling", "2": "Pulling"})
    await one.node_image(nginx={"tags": [tag("1", 1)]})

    async def versions() -> dict[str, int]:
        return {tag: entry.get("version", 0) for tag, entry in (await one.tags()).items()}

    await one.becomes(versions, {"1": 1})
    assert one.runtime.active_pulls == 1
    await one.node_image()
    await one.becomes(versions, {})
    await one.becomes(lambda: one.runtime.active_pulls, 0)
    assert agent.puller.pulls == {}


@pytest.mark.behaviour("KD-2", "KD-106")
@pytest.mark.parametrize("owners", [[], [{"namespace": "tenant", "name": "job", "uid": "u"}]])
@pytest.mark.parametrize(("limit", "share", "most"), [(2, 50, 2), (0, 100, 6), (4, 50, 2), (4, 1, 1)])
@virtual
async def test_concurrent_pulls_are_limited_by_the_flags(
    owners: list[dict[str, str]], limit: int, share: int, most: int
) -> None:
    async with node_with_agent(max_pulls=limit, image_share=share) as (one, _):
        one.runtime.registry.default_seconds = 5
        await one.node_image(nginx={"tags": [tag(str(number), ownerReferences=owners) for number in range(6)]})
        await one.pulled("nginx", **{str(number): "Succeeded" for number in range(6)})
        assert one.runtime.most_pulls == (most if owners or not limit else limit)


@pytest.mark.behaviour("KD-36", "KD-37")
@on_node
async def test_credentials_are_tried_in_turn_and_required_once_given(
    one: Node, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    one.runtime.registry.users = {"registry.example": ("jane", "s3cret-word")}
    await one.secret("registry", config_json(registry_example="joe:wrong-word", **{"*_example": "jane:s3cret-word"}))
    entry = {"tags": [tag("1")], "pullSecrets": SECRETS}
    await one.node_image(**{"registry.example_app": entry})
    await one.pulled("registry.example/app", **{"1": "Succeeded"})
    assert [pull[1] for pull in one.runtime.pulls] == ["joe", "jane"]
    one.runtime.registry.users = {"registry.example": ("jane", "another")}
    await one.node_image(**{"registry.example_app": {**entry, "tags": [tag("1", 1)]}})
    tags = await one.pulled("registry.example/app", **{"1": "Failed"})
    assert "401" in tags["1"]["message"]
    # KD-37: with credentials, never anonymously.
    assert "" not in [pull[1] for pull in one.runtime.pulls]
    told = " ".join([*await one.events(), caplog.text, str(tags)])
    assert "s3cret-word" not in told
    assert "wrong-word" not in told


@pytest.mark.behaviour("KD-37")
@pytest.mark.parametrize(("errors", "shown"), [(["a"], "a"), (["a", "b", "a"], "[a, b]"), (["a", "a"], "a")])
def test_errors_of_several_credentials_are_reported_together(errors: list[str], shown: str) -> None:
    assert joined(errors) == shown


@pytest.mark.behaviour("KD-37", "KD-97", "KD-109")
@on_node
async def test_credentials_of_one_namespace_neither_serve_nor_fail_the_pull_of_another(one: Node, agent: Agent) -> None:
    def copied_from(namespace: str) -> dict[str, object]:
        return {"annotations": {"imagepulljobs.kruise.io/source-key": f"{namespace}/registry"}}

    def asked_by(namespaces: str) -> dict[str, object]:
        owners = [{"namespace": name, "name": "job", "uid": name} for name in namespaces.split() if name[0] != "+"]
        return {**tag("1", policy={"backoffLimit": 0}), "ownerReferences": owners}

    one.runtime.registry.users = {"private.example": ("jane", "word"), "open.example": ("", "")}
    wrong = {f"{host}/{path}": f"joe:{path}" for host in ("private_example", "open_example") for path in ("a", "app")}
    await one.secret("tenant", config_json(**wrong), metadata=copied_from("tenant"))
    for namespace in ("other", "third"):
        await one.secret(namespace, auths(private_example={"auth": "not base64"}), metadata=copied_from(namespace))
        await one.secret(f"{namespace}-2", config_json(private_example="jane:word"), metadata=copied_from(namespace))
    await one.secret("bank", config_json(private_example="jane:word"), metadata=copied_from("bank"))
    await one.secret("of-all", config_json(private_example="robot:wrong"))
    #: The namespaces that pull, and others (with a plus) whose Secrets the job names, too.
    pulls = {
        "private.example/app": ("tenant other bank", "Succeeded", ["joe", "jane"]),
        "private.example/app2": ("other bank", "Succeeded", ["jane"]),
        "private.example/app3": ("tenant other", "Failed", ["joe", "joe"]),
        "private.example/app4": ("other third", "Failed", []),
        "private.example/app5": ("of-all shop", "Failed", ["robot"]),
        "private.example/app6": ("other", "Failed", []),
        "private.example/app7": ("shop +bank", "Failed", [""]),
        "private.example/app8": ("+bank", "Succeeded", ["jane"]),
        "private.example/b": ("tenant shop", "Failed", [""]),
        "open.example/app": ("tenant shop", "Succeeded", ["joe", ""]),
    }
    await one.node_image(
        **{
            image.replace("/", "_"): {
                "tags": [asked_by(namespaces)],
                "pullSecrets": [
                    {"namespace": NAMESPACE, "name": name + more}
                    for name in namespaces.replace("+", "").split()
                    for more in ("", "-2")
                ],
            }
            for image, (namespaces, *_) in pulls.items()
        }
    )
    for image, (_, phase, users) in pulls.items():
        found = await one.pulled(image, **{"1": phase})
        assert [pull[1] for pull in one.runtime.pulls if pull[0] == f"{image}:1"] == users
        assert users or found["1"]["message"] == (
            f"Secret {NAMESPACE}/other: the auth of a registry is not base64 of user:password"
        )


@pytest.mark.behaviour("KD-38", "KD-94")
@on_node
async def test_a_missing_secret_is_skipped_and_a_changed_one_reread_after_a_refusal(one: Node, agent: Agent) -> None:
    await one.node_image(nginx={"tags": [tag("1")], "pullSecrets": SECRETS})
    await one.pulled("nginx", **{"1": "Succeeded"})
    assert [pull[1] for pull in one.runtime.pulls] == [""]
    one.runtime.registry.users = {"registry.example": ("jane", "new")}
    await one.secret("registry", config_json(registry_example="jane:old"))
    entry = {"tags": [tag("1", policy={"backoffLimit": 5})], "pullSecrets": SECRETS}
    await one.node_image(**{"registry.example_app": entry})

    await one.until(lambda: len(one.runtime.pulls) > 1)
    body = {"data": config_json(registry_example="jane:new")}
    await one.client.patch(SECRET, "registry", body, NAMESPACE)
    await one.pulled("registry.example/app", **{"1": "Succeeded"})


@pytest.mark.behaviour("KD-106")
@on_node(max_pulls=4, image_share=75)
async def test_an_unresponsive_registry_does_not_block_all_pulls(one: Node, agent: Agent) -> None:
    owner = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "name": "job", "uid": "u"}
    slow = [tag(str(number), policy={"timeoutSeconds": 10**6}) for number in range(8)]
    for entry in slow:
        one.runtime.registry.seconds[f"docker.io/library/slow:{entry['tag']}"] = 10**6
        entry["ownerReferences"] = [{**owner, "namespace": "tenant"}]
    await one.node_image(slow={"tags": slow})
    await one.pulled("slow", **{str(number): "Pulling" if number < 3 else "Waiting" for number in range(8)})
    one.runtime.registry.default_seconds = 5
    entry = {"tags": [{**tag(name), "ownerReferences": [{**owner, "namespace": "shop"}]} for name in ("1", "2")]}
    await one.node_image(slow={"tags": slow}, nginx=entry)
    await one.pulled("nginx", **{"1": "Succeeded", "2": "Succeeded"})
    assert one.runtime.most_pulls == 4


@pytest.mark.behaviour("KD-104")
@on_node
async def test_pull_secrets_of_one_namespace_cannot_exhaust_memory(one: Node, agent: Agent) -> None:
    names = [f"s{number}" for number in range(64)]
    for number, name in enumerate(names):
        await one.secret(name, auths(**{f"other{number}.example": {"username": "u", "password": "p" * 150_000}}))
    secrets = [{"namespace": NAMESPACE, "name": name} for name in names]
    await one.node_image(nginx={"tags": [tag("1")], "pullSecrets": secrets})
    await one.pulled("nginx", **{"1": "Succeeded"})
    kept = agent.puller._secrets.known
    assert list(kept) == [SecretReference(NAMESPACE, name) for name in names[-13:]]
    await one.secret("large", data_of(b"x" * 600_000))
    await one.node_image(redis={"tags": [tag("1")], "pullSecrets": [{"namespace": NAMESPACE, "name": "large"}]})
    failed = await one.pulled("redis", **{"1": "Failed"})
    assert f"Secret {NAMESPACE}/large is ignored: it holds 600000 bytes" in failed["1"]["message"]
    every = [f"{'*' * number}.example" for number in range(1, 130)]
    await one.secret("many", config_json(**dict.fromkeys(every, "u:p")))
    await one.secret("more", config_json(**{f"registry.{one.partition('.')[0]}": "u:p" for one in every[:128]}))
    many = [{"namespace": NAMESPACE, "name": name} for name in ("many", "more")]
    await one.node_image(**{"registry.example_app": {"tags": [tag("1")], "pullSecrets": many}})
    failed = await one.pulled("registry.example/app", **{"1": "Failed"})
    assert failed["1"]["message"] == "registry.example/app:1 has more than 256 matching credentials"


@pytest.mark.behaviour("KD-17", "KD-31")
@on_bare_node
async def test_an_agent_restarted_during_a_pull_repeats_it_and_keeps_finished_ones(one: Node) -> None:
    one.runtime.registry.seconds["docker.io/library/nginx:2"] = 50
    await one.node_image(nginx={"tags": [tag("1"), tag("2")]})
    async with running(one.agent().run()):
        before = await one.pulled("nginx", **{"1": "Succeeded", "2": "Pulling"})
        ended = one.clock.monotonic()
    assert (one.runtime.active_pulls, one.clock.monotonic()) == (0, ended)
    async with running(one.agent().run()):
        after = await one.pulled("nginx", **{"1": "Succeeded", "2": "Succeeded"})
    assert after["1"] == before["1"]
    assert [pull[0] for pull in one.runtime.pulls] == ["nginx:1", "nginx:2", "nginx:2"]


@pytest.mark.behaviour("KD-16")
@on_node
async def test_the_agent_waits_for_an_unavailable_runtime(one: Node, agent: Agent) -> None:
    one.runtime.away = True
    await one.node_image(nginx={"tags": [tag("1", policy={"backoffLimit": 0})]})
    await one.pulled("nginx", **{"1": "Pulling"})
    await one.clock.sleep(30)
    one.runtime.away = False
    await one.pulled("nginx", **{"1": "Succeeded"})


@pytest.mark.behaviour("KD-31")
@on_bare_node
async def test_a_tag_the_manager_gave_up_is_ignored(one: Node) -> None:
    one.runtime.registry.default_seconds = 50
    await one.node_image(nginx={"tags": [tag("1")]})
    failed = {"tag": "1", "phase": "Failed", "completionTime": "2030-01-01T00:00:00Z", "message": "no answer"}
    status = {"desired": 1, "failed": 1, "imageStatuses": {"nginx": {"tags": [failed]}}}
    await one.client.patch(NODE_IMAGES, NODE, {"status": status}, subresource="status")
    async with running(one.agent().run()):
        await one.clock.sleep(200)
        assert (await one.tags())["1"] == failed
        assert one.runtime.pulls == []


@pytest.mark.behaviour("KD-36", "KD-107")
@on_bare_node
async def test_credentials_of_secrets_precede_those_of_the_node(one: Node) -> None:
    class Known:
        def __init__(self, **users: str) -> None:
            self.found = credentials({key.replace("_", "."): Entry(user, "word") for key, user in users.items()}, "")
            self.forgotten = 0

        async def credentials(self, image: str, seconds: float) -> list[Credential]:
            assert (image, seconds) == ("registry.example/app:1", 50)
            return self.found

        def forget(self) -> None:
            self.forgotten += 1

    one.runtime.registry.users = {"registry.example": ("robot", "word")}
    keyrings = [Known(registry_example="file"), Known(other_example="x", registry_example="robot")]
    await one.secret("registry", config_json(**{"*_example": "jane:word", "registry_example": "joe:word"}))
    async with running(one.agent(keyrings=keyrings).run()):
        await one.node_image(**{"registry.example_app": {"tags": [tag("1")], "pullSecrets": SECRETS}})
        await one.pulled("registry.example/app", **{"1": "Succeeded"})
        assert [pull[1] for pull in one.runtime.pulls] == ["joe", "jane", "file", "robot"]
        one.runtime.registry.users = {"registry.example": ("other", "word")}
        entry = {"tags": [tag("1", 1, policy={"backoffLimit": 0})], "pullSecrets": SECRETS}
        await one.node_image(**{"registry.example_app": entry})
        await one.pulled("registry.example/app", **{"1": "Failed"})
        assert [keyring.forgotten for keyring in keyrings] == [1, 1]


@pytest.mark.behaviour("KD-38")
@on_bare_node
async def test_unused_credentials_leave_the_memory(one: Node) -> None:
    cache = SecretCache(one.client, Random(1))
    first, second = (SecretReference(NAMESPACE, name) for name in ("first", "second"))
    for wanted in (first, second):
        await one.secret(wanted.name, config_json(registry_example="jane:word"))
        known = await cache.get(wanted)
    await one.client.delete(SECRET, "first", NAMESPACE)
    assert await cache.get(first) is not None, "from memory"
    assert cache.known == (first, second)
    await one.clock.sleep(601)
    assert (await cache.get(first), await cache.get(second)) == (None, known)
    assert cache.known == (second,)


@pytest.mark.behaviour("KD-38")
@on_node
async def test_objects_that_are_not_pull_secrets_are_skipped(
    one: Node, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Users control the pull secrets of a NodeImage, and other tenants pull from the same repository."""
    secrets = [{"name": "x"}, {"namespace": NAMESPACE}, {"namespace": "../..", "name": "x"}, {}]
    await one.node_image(nginx={"tags": [tag("1")], "pullSecrets": secrets})
    await one.pulled("nginx", **{"1": "Succeeded"})
    assert caplog.text.count("ignoring a pull secret without a namespace or a name") == 3
