"""``pykruise pull`` pulls an image on nodes; ``explain_node`` lists the pulls of a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import SystemRandom
from typing import Any, Final

from app.features.imagepull.objects import NODE_IMAGES
from app.features.imagepull.plan import jobs as plan
from app.features.imagepull.plan.tags import status_of
from app.features.imagepull.reconcile.jobs import JOBS
from app.framework.commands import table
from app.framework.options import Enabled
from app.framework.verbs import Call, LastSaid, Option, Request, Verb
from app.kube.client import Client
from app.kube.errors import CommandError, Forbidden, NotFound, WrongCommandError
from app.kube.hashes import random_suffix
from app.kube.images import FamiliarImage, familiar_image
from app.kube.objects import Node, decode_metadata
from app.kube.resources import SECRETS
from app.kube.selector_query import SelectorError, parse

Json = dict[str, Any]
POLL_SECONDS: Final = 1.0
#: Seconds to keep a finished job that this command created.
TTL_SECONDS: Final = 600
_MAX_NAME: Final = 40
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def label_selector(text: str) -> Json:
    """Parse a label selector as ``kubectl -l`` does. Raises WrongCommandError."""
    try:
        found = parse(text)
    except SelectorError as error:
        raise WrongCommandError(f"--nodes: {error}; use the form zone=a,disk!=slow") from None
    expressions: list[Json] = []
    for key, operator, values in found:
        if operator not in _OPERATORS:
            raise WrongCommandError(f"--nodes: {key}: unsupported operator; use =, !=, in, notin or a label name")
        expressions.append({"key": key, "operator": operator, **({"values": list(values)} if values else {})})
    return {"matchExpressions": expressions}


def new_job(image: FamiliarImage, call: Call, suffix: str) -> Json:
    """Return the ImagePullJob for the command's arguments."""
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
    """Return a job's progress on a node in a few words, or '' if its pull has not been requested yet."""
    entry = ((node_image.get("spec") or {}).get("images") or {}).get(image.name) or {}
    tag = next((one for one in entry.get("tags") or () if one.get("tag") == image.tag), None)
    if tag is None or not any(owner.get("uid") == uid for owner in tag.get("ownerReferences") or ()):
        return ""
    status = status_of(node_image, image.name, image.tag)
    if status is None or (status.get("version") or 0) != (tag.get("version") or 0):
        return "requested"
    done = f" {status['progress']} %" if status.get("progress") and status["phase"] == "Pulling" else ""
    return f"{status['phase']}{done}" + (f": {status['message']}" if status.get("message") else "")


async def pull(call: Call) -> int:
    """Create the job. With ``--wait``, print a line per node whenever its progress changes."""
    if len(call.arguments) != 1:
        raise WrongCommandError(f"pull {' '.join(call.arguments)}: expected one IMAGE")
    image = familiar_image(call.arguments[0])
    if image is None:
        raise WrongCommandError(f"pull {call.arguments[0]}: not an image reference; use the form nginx:1.27")
    body = new_job(image, call, random_suffix(SystemRandom()))
    for secret in body["spec"].get("pullSecrets", ()):
        await _check_secret(call, secret)
    return await Request(JOBS, body, str(image), "pulling", "cancel it", POLL_SECONDS, _reporter(image)).make(call)


async def _check_secret(call: Call, name: str) -> None:
    """Raise CommandError if the Secret does not exist: the job would pull without it. A Forbidden error is ignored."""
    try:
        await call.client.get(SECRETS, name, call.namespace, decode=decode_metadata)
    except NotFound:
        raise CommandError(f"--secret: Secret {call.namespace}/{name}: not found; create it or use another") from None
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
            more = "; no node matched, see: kubectl get nodeimages --show-labels"
        call.say(f"{status.get('succeeded', 0)} of {status.get('desired', 0)} nodes have the image{more}")
        return 1 if status.get("failed") or not status.get("desired") else 0

    return report


async def explain_node(client: Client, node: Node, enabled: Enabled) -> Sequence[str]:
    """Return a line for each image that the node must pull, with its progress."""
    name = node.metadata.name
    if not enabled("KruiseDaemon"):
        return ["images: the node has no agent because feature gate KruiseDaemon is off"]
    try:
        found: Json = await client.get(NODE_IMAGES, name)
    except NotFound:
        return ["images: no NodeImage: the node is virtual or has not been ready long enough, or no manager is running"]
    rows: list[tuple[str, ...]] = []
    for repository, entry in sorted(((found.get("spec") or {}).get("images") or {}).items()):
        for tag in entry.get("tags") or ():
            status = status_of(found, repository, tag["tag"]) or {}
            current = (status.get("version") or 0) == (tag.get("version") or 0) and bool(status)
            owners = tag.get("ownerReferences") or ()
            asked = ", ".join(f"{one.get('namespace')}/{one.get('name')}" for one in owners) or "a user"
            word = str(status.get("phase")) if current else "not reported yet"
            rows.append((str(FamiliarImage(repository, tag["tag"])), word, asked, status.get("message") or "-"))
    if not rows:
        return ["images: none requested"]
    return ["images:", *table([("IMAGE", "PHASE", "REQUESTED BY", "MESSAGE"), *rows]).splitlines()]


PULL: Final = Verb(
    "pull",
    "Pull an image on nodes ahead of time. Creates an ImagePullJob.",
    "IMAGE",
    (
        Option("nodes", "Select nodes by label, such as zone=a,disk!=slow", short="l", takes="LABELS"),
        Option(
            "wait",
            "Show progress until the job completes; exit with 1 if a pull failed",
            flag=True,
            short="w",
        ),
        Option("parallelism", "Number of nodes that pull at the same time", default="10", takes="N"),
        Option("deadline", "Time limit of the job, such as 5m; 0 means none", default="0", takes="DURATION"),
        Option("secret", "Comma-separated names of pull secrets in the namespace", takes="NAMES"),
        Option("again", "Pull even on nodes that have the image", flag=True),
    ),
    pull,
)
