"""``pykruise pull``: an image on nodes, now; and what the agent of a node pulls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import SystemRandom
from typing import Any, Final

from app.features.imagepull.objects import NODE_IMAGES
from app.features.imagepull.plan import jobs as plan
from app.features.imagepull.reconcile.jobs import JOBS
from app.framework.commands import table
from app.framework.options import Enabled
from app.framework.verbs import Call, LastSaid, LongVerb, Option, Request
from app.kube.client import Client
from app.kube.errors import CommandError, Forbidden, NotFound, WrongCommandError
from app.kube.images import FamiliarImage, familiar_image
from app.kube.objects import Node, decode_metadata
from app.kube.resources import SECRETS
from app.kube.selector_query import SelectorError, parse
from app.pods.hashes import random_suffix

Json = dict[str, Any]
POLL_SECONDS: Final = 1.0
#: A job that this command made is kept for so long.
TTL_SECONDS: Final = 600
_MAX_NAME: Final = 40
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def label_selector(text: str) -> Json:
    """The LabelSelector that ``kubectl -l`` would mean. Raises WrongCommandError."""
    try:
        found = parse(text)
    except SelectorError as error:
        raise WrongCommandError(f"--nodes: {error}; write it like zone=a,disk!=slow") from None
    expressions: list[Json] = []
    for key, operator, values in found:
        if operator not in _OPERATORS:
            raise WrongCommandError(f"--nodes: {key}: nodes are selected by =, !=, in, notin and names of labels")
        expressions.append({"key": key, "operator": operator, **({"values": list(values)} if values else {})})
    return {"matchExpressions": expressions}


def new_job(image: FamiliarImage, call: Call, suffix: str) -> Json:
    """The ImagePullJob that the command asks for."""
    words = "".join(char if char.isascii() and char.isalnum() else "-" for char in str(image).lower())
    policy: Json = {"type": "Always", "ttlSecondsAfterFinished": TTL_SECONDS}
    if call.seconds("deadline"):
        policy["activeDeadlineSeconds"] = call.seconds("deadline")
    spec: Json = {
        "image": str(image),
        "parallelism": call.number("parallelism"),
        "completionPolicy": policy,
        "imagePullPolicy": "Always" if call.flag("again") else "IfNotPresent",
    }
    if call.text("nodes"):
        spec["selector"] = label_selector(call.text("nodes"))
    if call.text("secret"):
        spec["pullSecrets"] = [one for one in call.text("secret").split(",") if one]
    name = f"pull-{words.strip('-')[:_MAX_NAME].strip('-')}-{suffix}"
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": {"name": name}, "spec": spec}


def progress_on(node_image: Mapping[str, Any], image: FamiliarImage, uid: str) -> str:
    """How far a job is on a node, in a few words; '' where it has not asked yet."""
    entry = ((node_image.get("spec") or {}).get("images") or {}).get(image.name) or {}
    tag = next((one for one in entry.get("tags") or () if one.get("tag") == image.tag), None)
    if tag is None or not any(owner.get("uid") == uid for owner in tag.get("ownerReferences") or ()):
        return ""
    status = status_on(node_image, image.name, image.tag)
    if status is None or (status.get("version") or 0) != (tag.get("version") or 0):
        return "asked for"
    done = f" {status['progress']} %" if status.get("progress") and status["phase"] == "Pulling" else ""
    return f"{status['phase']}{done}" + (f": {status['message']}" if status.get("message") else "")


def status_on(node_image: Mapping[str, Any], name: str, tag: str) -> Json | None:
    """What a NodeImage says of a tag."""
    statuses = ((node_image.get("status") or {}).get("imageStatuses") or {}).get(name) or {}
    return next((one for one in statuses.get("tags") or () if one.get("tag") == tag), None)


async def pull(call: Call) -> int:
    """Make the job; with ``--wait`` a line per node whenever it comes further."""
    if len(call.arguments) != 1:
        raise WrongCommandError(f"pull {' '.join(call.arguments)}: expected one IMAGE")
    image = familiar_image(call.arguments[0])
    if image is None:
        raise WrongCommandError(f"pull {call.arguments[0]}: is no reference of an image; write it like nginx:1.27")
    body = new_job(image, call, random_suffix(SystemRandom()))
    for secret in body["spec"].get("pullSecrets", ()):
        await _check_secret(call, secret)
    return await Request(JOBS, body, str(image), "pulling", "ends it", POLL_SECONDS, _reporter(image)).make(call)


async def _check_secret(call: Call, name: str) -> None:
    """A Secret that is not there: the pull would go on without it. Whoever may not read it need not know."""
    try:
        await call.client.get(SECRETS, name, call.namespace, decode=decode_metadata)
    except NotFound:
        raise CommandError(f"--secret: Secret {call.namespace}/{name}: not found; create it or name another") from None
    except Forbidden:
        return


def _reporter(image: FamiliarImage) -> Callable[[Call, Json], Awaitable[int | None]]:
    said = LastSaid()

    async def report(call: Call, job: Json) -> int | None:
        for one in (await call.client.list(NODE_IMAGES)).items:
            node, word = one["metadata"]["name"], progress_on(one, image, job["metadata"]["uid"])
            if word and said.is_news(node, word):
                call.say(f"{node}: {word}")
        status = job.get("status") or {}
        message = str(status.get("message") or "")
        if plan.NO_ROOM in message and said.is_news("", message):
            call.say(message)
        if not status.get("completionTime"):
            return None
        failed = ", ".join(status.get("failedNodes") or ())
        more = f"; failed: {failed}" if failed else ""
        if not status.get("desired"):
            more = "; none was selected, see: kubectl get nodeimages --show-labels"
        call.say(f"{status.get('succeeded', 0)} of {status.get('desired', 0)} nodes have it{more}")
        return 1 if status.get("failed") or not status.get("desired") else 0

    return report


async def explain_node(client: Client, node: Node, enabled: Enabled) -> Sequence[str]:
    """What the agent of the node has to pull, and how far it is; a line each."""
    name = node.metadata.name
    if not enabled("KruiseDaemon"):
        return ["images: the node has no agent, gate KruiseDaemon is off"]
    try:
        found: Json = await client.get(NODE_IMAGES, name)
    except NotFound:
        return ["images: the node has no NodeImage (yet): it is not ready for long enough, is virtual, or no manager"]
    rows: list[tuple[str, ...]] = []
    for repository, entry in sorted(((found.get("spec") or {}).get("images") or {}).items()):
        for tag in entry.get("tags") or ():
            status = status_on(found, repository, tag["tag"]) or {}
            current = (status.get("version") or 0) == (tag.get("version") or 0) and bool(status)
            owners = tag.get("ownerReferences") or ()
            asked = ", ".join(f"{one.get('namespace')}/{one.get('name')}" for one in owners) or "somebody by hand"
            word = str(status.get("phase")) if current else "not reported yet"
            rows.append((str(FamiliarImage(repository, tag["tag"])), word, asked, status.get("message") or "-"))
    if not rows:
        return ["images: none is asked for"]
    return ["images:", *table([("IMAGE", "PHASE", "ASKED FOR BY", "MESSAGE"), *rows]).splitlines()]


PULL: Final = LongVerb(
    "pull",
    "Pull an image on nodes ahead of time. Creates an ImagePullJob.",
    "IMAGE",
    (
        Option("nodes", "Only nodes with these labels, such as zone=a,disk!=slow", short="l", takes="LABELS"),
        Option(
            "wait", "Show the progress of each node until all are done; exit code 1 if one failed", flag=True, short="w"
        ),
        Option("parallelism", "How many nodes at once", default="10", takes="N"),
        Option("deadline", "Give up after this, such as 5m; 0: never", default="0", takes="DURATION"),
        Option("secret", "Pull secrets of the namespace, separated by commas", takes="NAMES"),
        Option("again", "Also on nodes that have the image already", flag=True),
    ),
    pull,
)
