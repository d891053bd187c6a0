"""Calls of admission and conversion webhooks."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import orjson

from app.kube.clock import Clock
from app.kube.selectors import Selector, compile_selector
from app.sandbox.apiserver import golang, status
from app.sandbox.apiserver.cel import CelError, compiled
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.steps import Attributes
from app.sandbox.apiserver.storage import Core

Json: TypeAlias = dict[str, Any]

MUTATING: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING: Final = "validatingwebhookconfigurations.admissionregistration.k8s.io"
_OWN_GROUP: Final = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of a configuration."""

    configuration: str
    name: str
    raw: Mapping[str, Any]
    namespaces: Selector
    objects: Selector

    @property
    def ignores_failure(self) -> bool:
        """Return whether a write is allowed if the call fails."""
        return self.raw.get("failurePolicy") == "Ignore"

    @property
    def seconds(self) -> int:
        """Return the timeout of a call in seconds."""
        return int(self.raw.get("timeoutSeconds") or 10)

    @property
    def reinvocable(self) -> bool:
        """Return whether the hook is called again if later webhooks change the object."""
        return self.raw.get("reinvocationPolicy") == "IfNeeded"


@dataclass(frozen=True, slots=True)
class Invocation:
    """A hook to call, and the resource in the version that the hook's rule names."""

    hook: Hook
    resource: ResourceType


def hooks_of(core: Core, collection: str) -> Hooks:
    """Return all webhooks of one kind of configuration in call order, sorted by the names of the configurations."""
    found = []
    for entry in core.named(collection).select(""):
        for raw in entry.obj.get("webhooks") or ():
            found.append(
                Hook(
                    configuration=entry.key,
                    name=raw["name"],
                    raw=raw,
                    namespaces=compile_selector(raw.get("namespaceSelector")),
                    objects=compile_selector(raw.get("objectSelector")),
                )
            )
    return Hooks(tuple(found))


def matching(core: Core, hook: Hook, attributes: Attributes) -> Invocation | None:
    """Return the call that a write requires, or None. Match conditions are checked by :func:`conditions_hold`."""
    resource = attributes.resource
    if resource.group == _OWN_GROUP and resource.plural.endswith("webhookconfigurations"):
        return None  # otherwise a broken configuration could not be repaired
    rules = hook.raw.get("rules") or ()
    rows = core.registry.versions_of(resource) if hook.raw.get("matchPolicy") != "Exact" else (resource,)
    row = next((row for row in rows if any(_rule_matches(rule, attributes, row) for rule in rules)), None)
    if row is None:
        return None
    if not any(_selects(hook.objects, obj) for obj in (attributes.obj, attributes.old) if obj is not None):
        return None
    return Invocation(hook, row) if _namespace_selected(core, hook, attributes) else None


class Hooks:
    """The webhooks of one kind of configuration. Optimized for writes that match no webhook."""

    def __init__(self, all_: tuple[Hook, ...] = ()) -> None:
        self.all = all_
        #: Cache: attributes of a write → the resource's versions that the entry is valid for, and the matching hooks.
        self._known: dict[tuple[str, str, str, str, bool], tuple[tuple[ResourceType, ...], tuple[Hook, ...]]] = {}

    def for_write(self, core: Core, attributes: Attributes) -> tuple[Hook, ...]:
        """Return the hooks with a rule that may match the write. :func:`matching` also checks the object's name and the
        selectors."""
        resource = attributes.resource
        rows = core.registry.versions_of(resource)
        key = (
            attributes.operation,
            resource.api_version,
            resource.plural,
            attributes.subresource,
            bool(attributes.namespace),
        )
        known = self._known.get(key)
        if known is None or known[0] is not rows:
            known = self._known[key] = (rows, tuple(hook for hook in self.all if _rules_cover(hook, attributes, rows)))
        return known[1]


def _rules_cover(hook: Hook, attributes: Attributes, rows: Sequence[ResourceType]) -> bool:
    return any(_rule_covers(rule, attributes, row) for rule in hook.raw.get("rules") or () for row in rows)


def _rule_matches(rule: Mapping[str, Any], attributes: Attributes, row: ResourceType) -> bool:
    names = rule.get("resourceNames")
    return (not names or attributes.name in names) and _rule_covers(rule, attributes, row)


def _rule_covers(rule: Mapping[str, Any], attributes: Attributes, row: ResourceType) -> bool:
    operations = rule.get("operations") or ()
    if "*" not in operations and attributes.operation not in operations:
        return False
    for wanted, actual in ((rule.get("apiGroups"), row.group), (rule.get("apiVersions"), row.version)):
        if "*" not in (wanted or ()) and actual not in (wanted or ()):
            return False
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") is not bool(attributes.namespace and row.plural != "namespaces"):
        return False
    return any(_resource_matches(text, row.plural, attributes.subresource) for text in rule.get("resources") or ())


def _resource_matches(text: str, plural: str, subresource: str) -> bool:
    wanted, _, below = text.partition("/")
    return wanted in ("*", plural) and (below == subresource or below == "*" or (text == "*" and not subresource))


def _selects(selector: Selector, obj: Mapping[str, Any]) -> bool:
    return selector.empty or selector.matches((obj.get("metadata") or {}).get("labels") or {})


def _namespace_selected(core: Core, hook: Hook, attributes: Attributes) -> bool:
    if hook.namespaces.empty:
        return True
    if attributes.resource.plural == "namespaces" and not attributes.resource.group:
        if attributes.operation in ("CREATE", "UPDATE") and not attributes.subresource:
            return _selects(hook.namespaces, attributes.obj or {})
        name = attributes.name
    elif not attributes.namespace:
        return True
    else:
        name = attributes.namespace
    entry = core.named("namespaces").objects.get(name)
    return entry is not None and hook.namespaces.matches(entry.labels)


def conditions_hold(hook: Hook, variables: Mapping[str, Any]) -> bool:
    """Return whether all match conditions are true. Raises :class:`CelError` if an evaluation fails, unless the hook's
    failure policy is Ignore."""
    errors: list[str] = []
    for condition in hook.raw.get("matchConditions") or ():
        try:
            if compiled(condition["expression"]).evaluate(variables) is False:
                return False
        except CelError as error:
            errors.append(str(error))
    if errors and not hook.ignores_failure:
        raise CelError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return not errors


def variables_of(attributes: Attributes, request: Json) -> dict[str, Any]:
    """Return the variables of match conditions."""
    return {"object": attributes.obj, "oldObject": attributes.old, "request": request}


def client_config(raw: Mapping[str, Any]) -> tuple[str, str, Sequence[str]]:
    """Return the URL, CA bundle and review versions of a hook. A Service becomes a URL with its DNS name in the
    cluster."""
    config = raw.get("clientConfig") or {}
    service = config.get("service")
    url = config.get("url") or ""
    if service is not None:
        path = (service.get("path") or "").lstrip("/")
        url = f"https://{service['name']}.{service['namespace']}.svc:{service.get('port') or 443}/{path}"
    return url, config.get("caBundle") or "", raw.get("admissionReviewVersions") or ()


#: In-process webhook server: takes path and body, returns HTTP status and body.
Local: TypeAlias = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]

_MAX_ANSWER: Final = 16 * 2**20


class CallFailed(Exception):
    """The call did not return a valid response. The message is the one that Kubernetes reports."""


@dataclass
class HookCaller:
    """Sends reviews to webhooks. ``services`` maps Services to addresses; ``local`` maps them to in-process
    handlers."""

    clock: Clock
    #: ``name.namespace`` → host and port.
    services: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: ``name.namespace``, or ``host:port`` of a URL → in-process handler.
    local: dict[str, Local] = field(default_factory=dict)
    _sessions: dict[str, aiohttp.ClientSession] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    async def call(self, url: str, ca_bundle: str, review: Json, seconds: float) -> Json:
        """Return the response to a review. Raises :class:`CallFailed`."""
        parts = urlsplit(url)
        body = orjson.dumps(review)
        shown = f'Post "{url}?timeout={int(seconds)}s"'
        name = _service_name(parts.hostname or "")
        try:
            local = self._local(url)
            if local is not None:
                status, answer = await self.clock.wait_for(local(parts.path, body), seconds)
            else:
                status, answer = await self._post(url, name, ca_bundle, body, seconds)
        except TimeoutError:
            raise CallFailed(f"failed to call webhook: {shown}: context deadline exceeded") from None
        except (aiohttp.ClientError, OSError) as error:
            raise CallFailed(f"failed to call webhook: {shown}: {_explained(error, parts.netloc)}") from None
        if status >= 300:
            raise CallFailed(f"failed to call webhook: {_server_said(status, answer)}")
        if not answer:
            media = "application/json; charset=utf-8"
            raise CallFailed(
                f"failed to call webhook: 0-length response with status code: {status} and content type: {media}"
            )
        try:
            found = orjson.loads(answer)
        except orjson.JSONDecodeError:
            # A real server then parses the text as YAML, in which any text is a string.
            raise CallFailed(f"failed to call webhook: {_not_an_object('string')}") from None
        if not isinstance(found, dict):
            raise CallFailed(f"failed to call webhook: {_not_an_object(golang.json_type(found))}")
        return found

    def is_local(self, url: str) -> bool:
        """Return whether a hook is handled in this process."""
        return self._local(url) is not None

    def _local(self, url: str) -> Local | None:
        parts = urlsplit(url)
        return self.local.get(_service_name(parts.hostname or "")) or self.local.get(parts.netloc)

    async def _post(self, url: str, service: str, ca_bundle: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        parts = urlsplit(url)
        target, server_name = url, None
        if service:
            address = self.services.get(service)
            if address is None:
                raise OSError(f'service "{service.partition(".")[0]}" not found')
            target = f"https://{address[0]}:{address[1]}{parts.path}"
            server_name = parts.hostname
        session = self._session(ca_bundle)
        limits = aiohttp.ClientTimeout(total=seconds)
        async with session.post(
            target,
            data=body,
            params={"timeout": f"{int(seconds)}s"},
            headers={"Content-Type": "application/json", "Accept": "application/json, */*"},
            timeout=limits,
            server_hostname=server_name,
            allow_redirects=False,
        ) as answer:
            # One read may return only the start of a long response.
            found = bytearray()
            while len(found) < _MAX_ANSWER and (more := await answer.content.read(_MAX_ANSWER - len(found))):
                found += more
            return answer.status, bytes(found)

    def _session(self, ca_bundle: str) -> aiohttp.ClientSession:
        session = self._sessions.get(ca_bundle)
        if session is None:
            context = ssl.create_default_context(cadata=base64.b64decode(ca_bundle).decode() if ca_bundle else None)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            connector = aiohttp.TCPConnector(ssl=context, limit=0)
            session = self._sessions[ca_bundle] = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        return session

    def abandon(self) -> None:
        """Start closing all connections. The event loop finishes closing them."""
        if self._sessions:
            closing = asyncio.get_running_loop().create_task(self.close(), name="sandbox: close webhook connections")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


def _not_an_object(found: str) -> str:
    words = f"json: cannot unmarshal {found} into Go value of type {golang.TYPE_META}"
    return f"couldn't get version/kind; json parse error: {words}"


def _service_name(host: str) -> str:
    parts = host.split(".")
    return f"{parts[0]}.{parts[1]}" if len(parts) == 3 and parts[2] == "svc" else ""


def _explained(error: Exception, address: str) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLError):
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return f"dial tcp {address}: connect: connection refused"
        return f"dial tcp {address}: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error)


def _server_said(status: int, answer: bytes) -> str:
    try:
        found = orjson.loads(answer)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return str(found.get("message", ""))
    if status == 404:
        return "the server could not find the requested resource"
    if status == 503:
        return "the server is currently unable to handle the request"
    if status >= 500:
        return 'an error on the server ("unknown") has prevented the request from succeeding'
    if status == 400:
        return "the server rejected our request for an unknown reason"
    return f"the server responded with the status code {status} but did not return more information"


# Conversion webhooks convert custom objects between versions outside the server. Source: Kubernetes 1.34,
# apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go.

_SECONDS: Final = 30
_CONTEXT: Final = "failed to call webhook: "


class WebhookConverter:
    """Calls the conversion webhook of a CustomResourceDefinition."""

    def __init__(self, caller: HookCaller, new_uid: Callable[[], str]) -> None:
        self._caller = caller
        self._new_uid = new_uid

    async def convert(self, resource: ResourceType, objects: Sequence[Json], wanted: str) -> list[Json]:
        """Return the objects in the requested version. Fails with status 500 if the webhook's response is invalid."""
        if resource.custom is None or resource.custom.conversion is None:  # pragma: no cover  # callers check this
            return list(objects)
        what = f"conversion webhook for {objects[0]['apiVersion']}, Kind={resource.kind}"
        url, ca_bundle, _ = client_config(resource.custom.conversion)
        uid = self._new_uid()
        review = {
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": list(objects)},
        }
        try:
            answer = await self._caller.call(url, ca_bundle, review, _SECONDS)
        except CallFailed as error:
            raise status.plain_error(f"{what} failed: {str(error).removeprefix(_CONTEXT)}") from None
        response = answer.get("response") or {}
        _check(what, uid, response)
        converted = response.get("convertedObjects") or []
        if len(converted) != len(objects):
            raise status.plain_error(f"{what} returned {len(converted)} objects, expected {len(objects)}")
        for index, (before, after) in enumerate(zip(objects, converted, strict=True)):
            _check_object(what, index, before, after, wanted)
        return list(converted)


def _check(what: str, uid: str, response: Json) -> None:
    if response.get("uid") != uid:
        found = response.get("uid", "")
        raise status.plain_error(f'{what} failed: expected response.uid="{uid}", got "{found}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise status.plain_error(f"{what} failed: {result.get('message') or result.get('reason') or 'unknown reason'}")


def _check_object(what: str, index: int, before: Json, after: Any, wanted: str) -> None:
    """Reject a conversion that changes an object's kind or identity."""
    at = f"{what} returned invalid object at index {index}"
    if not isinstance(after, dict):
        raise status.plain_error(f"{at}: {golang.json_type(after)}")
    if after.get("apiVersion") != wanted:
        found = after.get("apiVersion", "")
        raise status.plain_error(f"{at}: invalid groupVersion (expected {wanted}, received {found})")
    if after.get("kind") != before.get("kind"):
        raise status.plain_error(f"{at}: invalid kind (expected {before.get('kind')}, received {after.get('kind')})")
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    for key, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if old.get(key) != new.get(key):
            same = f"must have the same {word}: {old.get(key)} != {new.get(key)}"
            raise status.plain_error(f"{what} returned invalid object: {same}")
