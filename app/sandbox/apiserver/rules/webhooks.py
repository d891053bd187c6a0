"""Validation of webhook configurations.

Source: Kubernetes 1.34, pkg/apis/admissionregistration/validation.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from app.kube.fielderrors import FieldError, Path, duplicate, invalid, not_supported, quote, required
from app.kube.selectors import validate_selector
from app.kube.validation import is_dns1123_subdomain, is_qualified_name
from app.sandbox.apiserver.cel import REQUEST_VARIABLES, fault

Json: TypeAlias = dict[str, Any]

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_KNOWN_REVIEWS: Final = ("v1", "v1beta1")
_MAX_SECONDS: Final = 30
#: Lists in a rule in which ``*`` means everything, with their names in messages.
_ALONE: Final = {"apiGroups": "API groups", "apiVersions": "API versions", "operations": "operations"}


def errors(configuration: Json) -> list[FieldError]:
    """Return all errors of a configuration's webhooks."""
    found: list[FieldError] = []
    names: set[str] = set()
    for index, hook in enumerate(configuration.get("webhooks") or ()):
        at = Path("webhooks").index(index)
        found += _hook_errors(hook, at)
        name = hook.get("name") or ""
        if name in names:
            found.append(duplicate(at.child("name"), name))
        names.add(name)
    return found


def _hook_errors(hook: Json, at: Path) -> list[FieldError]:
    found: list[FieldError] = _name_errors(hook.get("name") or "", at.child("name"))
    for index, rule in enumerate(hook.get("rules") or ()):
        found += _rule_errors(rule, at.child("rules").index(index))
    for name, known in (("failurePolicy", ("Fail", "Ignore")), ("matchPolicy", ("Equivalent", "Exact"))):
        if hook.get(name) not in known:
            found.append(not_supported(at.child(name), hook.get(name) or "", known))
    effects = hook.get("sideEffects")
    if effects is None:
        found.append(required(at.child("sideEffects"), f"must specify one of {', '.join(_SIDE_EFFECTS)}"))
    elif effects not in _SIDE_EFFECTS:
        found.append(not_supported(at.child("sideEffects"), effects, _SIDE_EFFECTS))
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= _MAX_SECONDS:
        message = f"the timeout value must be between 1 and {_MAX_SECONDS} seconds"
        found.append(invalid(at.child("timeoutSeconds"), seconds, message))
    for name in ("namespaceSelector", "objectSelector"):
        found += validate_selector(hook.get(name), at.child(name))
    found += _client_errors(hook.get("clientConfig") or {}, at.child("clientConfig"))
    versions = hook.get("admissionReviewVersions") or []
    place = at.child("admissionReviewVersions")
    if not versions:
        found.append(required(place, f"must specify one of {', '.join(_KNOWN_REVIEWS)}"))
    for index, version in enumerate(versions):
        if version in versions[:index]:
            found.append(invalid(place.index(index), version, "duplicate version"))
    if versions and not any(version in _KNOWN_REVIEWS for version in versions):
        message = f"must include at least one of {', '.join(_KNOWN_REVIEWS)}"
        found.append(invalid(place, versions, message))
    if hook.get("reinvocationPolicy") not in (None, "IfNeeded", "Never"):
        found.append(not_supported(at.child("reinvocationPolicy"), hook["reinvocationPolicy"], ("IfNeeded", "Never")))
    conditions = [condition.get("name") for condition in hook.get("matchConditions") or ()]
    for index, condition in enumerate(hook.get("matchConditions") or ()):
        name, place = condition.get("name") or "", at.child("matchConditions").index(index).child("name")
        if not name:
            found.append(required(place))
        elif name in conditions[:index]:
            found.append(duplicate(place, name))
        else:
            found += [invalid(place, name, message) for message in is_qualified_name(name)]
        found += _condition_errors(condition, at.child("matchConditions").index(index))
    return found


def _name_errors(name: str, at: Path) -> list[FieldError]:
    if not name:
        return [required(at)]
    found = [invalid(at, name, message) for message in is_dns1123_subdomain(name)]
    if not found and len(name.split(".")) < 3:
        found.append(invalid(at, name, "should be a domain with at least three segments separated by dots"))
    return found


def _rule_errors(rule: Json, at: Path) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("apiGroups", "apiVersions", "operations", "resources"):
        values = rule.get(name) or []
        if not values:
            found.append(required(at.child(name)))
        elif name in _ALONE and len(values) > 1 and "*" in values:
            found.append(invalid(at.child(name), values, f"if '*' is present, must not specify other {_ALONE[name]}"))
    found += _resource_errors(rule.get("resources") or [], at.child("resources"))
    found += [
        not_supported(at.child("operations").index(index), operation, _OPERATIONS)
        for index, operation in enumerate(rule.get("operations") or ())
        if operation not in _OPERATIONS
    ]
    if rule.get("scope") not in (None, "*", "Cluster", "Namespaced"):
        found.append(not_supported(at.child("scope"), rule["scope"], ("*", "Cluster", "Namespaced")))
    return found


def _resource_errors(resources: list[str], at: Path) -> list[FieldError]:
    """Report missing resources, and those that other entries of the list already include."""
    found: list[FieldError] = []
    with_all_below: set[str] = set()
    below_all: set[str] = set()
    for index, text in enumerate(resources):
        resource, slash, below = text.partition("/")
        if not text:
            found.append(required(at.index(index)))
        if not slash:
            continue
        if resource in with_all_below:
            message = f"if '{resource}/*' is present, must not specify {text}"
            found.append(invalid(at.index(index), text, message))
        if below in below_all:
            found.append(invalid(at.index(index), text, f"if '*/{below}' is present, must not specify {text}"))
        if below == "*":
            with_all_below.add(resource)
        if resource == "*":
            below_all.add(below)
    if len(resources) > 1 and "*/*" in resources:
        found.append(invalid(at, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and any(text != "*" and "/" not in text for text in resources):
        message = "if '*' is present, must not specify other resources without subresources"
        found.append(invalid(at, resources, message))
    return found


def _client_errors(config: Json, at: Path) -> list[FieldError]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [required(at, "exactly one of url or service is required")]
    if url is not None:
        return url_errors(url, at.child("url"))
    return service_errors(service or {}, at.child("service"))


def url_errors(url: str, at: Path) -> list[FieldError]:
    """Validate a webhook's URL. Source: apiserver/pkg/util/webhook/validation.go."""
    form = "; desired format: https://host[/path]"
    if ":" in url and not url.partition(":")[0]:
        return [required(at, f"url must be a valid URL: parse {quote(url)}: missing protocol scheme{form}")]
    parts = urlsplit(url)
    found: list[FieldError] = []
    if parts.scheme != "https":
        found.append(invalid(at, parts.scheme, f"'https' is the only allowed URL scheme{form}"))
    if not parts.netloc.rpartition("@")[2]:
        found.append(invalid(at, "", f"host must be specified{form}"))
    if parts.username is not None:
        found.append(invalid(at, parts.username, "user information is not permitted in the URL"))
    if parts.fragment:
        found.append(invalid(at, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        found.append(invalid(at, parts.query, "query parameters are not permitted in the URL"))
    return found


def service_errors(service: Json, at: Path) -> list[FieldError]:
    """Validate a reference to a webhook's Service."""
    # A real server swaps the two fields in its messages: it reports the one that is not missing.
    swapped = (("namespace", "name"), ("name", "namespace"))
    found = [required(at.child(shown)) for shown, name in swapped if not service.get(name)]
    port = service.get("port")
    if port is not None and not 0 < port < 65536:
        message = "port is not valid: must be between 1 and 65535, inclusive"
        found.append(invalid(at.child("port"), port, message))
    path = service.get("path")
    if path is None or path == "/":
        return found
    place = at.child("path")
    if not path.startswith("/"):
        found.append(invalid(place, path, "must start with a '/'"))
    segments = path[1:].split("/")
    if len(segments) > 1 and not segments[-1]:
        segments = segments[:-1]
    for index, segment in enumerate(segments):
        if not segment:
            found.append(invalid(place, path, f"segment[{index}] may not be empty"))
        else:
            found += [invalid(place, path, f"segment[{index}]: {fault}") for fault in is_dns1123_subdomain(segment)]
    return found


def _condition_errors(condition: Json, at: Path) -> list[FieldError]:
    source = condition.get("expression") or ""
    if not source.strip():
        return [required(at.child("expression"))]
    wrong = fault(source, REQUEST_VARIABLES)
    return [invalid(at.child("expression"), source, wrong)] if wrong else []
