"""SelfSubjectReviews and access reviews of an administrator."""

from typing import Any

from tests.conformance.steps import Case, get, post

_AUTHORIZATION = "/apis/authorization.k8s.io/v1"
_SELF, _SUBJECT, _LOCAL = "SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview"
_RULES = "SelfSubjectRulesReview"
_ATTRIBUTES = {"namespace": "{ns}", "verb": "get", "resource": "pods"}
_POD = {"resourceAttributes": _ATTRIBUTES}
_MASTER = {"user": "jane", "groups": ["system:masters"], **_POD}
_STATUS = ("status.allowed", "status.denied", "spec", "kind", "metadata", "message", "code", "details")


def _reviewed(id: str, kind: str, spec: Any, *keep: str, **more: Any) -> Case:
    namespace = "namespaces/{ns}/" if kind == _LOCAL else ""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec, **more}
    return Case(id, post(f"{_AUTHORIZATION}/{namespace}{kind.lower()}s", body, keep=keep))


CASES = [
    _reviewed("self", _SELF, _POD, *_STATUS),
    _reviewed("self-everything", _SELF, {"resourceAttributes": {"verb": "*", "resource": "*", "group": "*"}}, *_STATUS),
    _reviewed("self-path", _SELF, {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}, *_STATUS),
    _reviewed("self-nothing", _SELF, {}),
    _reviewed("self-both", _SELF, {**_POD, "nonResourceAttributes": {"path": "/", "verb": "get"}}),
    _reviewed("self-with-metadata", _SELF, _POD, "code", "reason", "details.causes.*.field", metadata={"name": "a"}),
    Case("self-read", get(f"{_AUTHORIZATION}/selfsubjectaccessreviews")),
    _reviewed("subject-master", _SUBJECT, _MASTER, *_STATUS),
    _reviewed("subject-nobody", _SUBJECT, _POD),
    _reviewed("subject-nothing", _SUBJECT, {"user": "jane"}),
    _reviewed("local-master", _LOCAL, _MASTER, *_STATUS, metadata={"namespace": "{ns}"}),
    _reviewed(
        "local-other-namespace",
        _LOCAL,
        {"user": "jane", "resourceAttributes": {**_ATTRIBUTES, "namespace": "elsewhere"}},
    ),
    _reviewed("rules", _RULES, {"namespace": "{ns}"}, "kind", "status.incomplete", "code"),
    _reviewed("rules-without-namespace", _RULES, {}, "kind", "status.incomplete", "message", "code"),
    Case(
        "myself",
        post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            keep=["kind", "status.userInfo.groups"],
        ),
    ),
]
