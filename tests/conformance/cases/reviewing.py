"""SelfSubjectReviews and access reviews of an administrator."""

from typing import Any

from tests.conformance.steps import Case, get, post

_AUTHORIZATION = "/apis/authorization.k8s.io/v1"


def _review(kind: str, spec: Any, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec, **more}


_ATTRIBUTES = {"namespace": "{ns}", "verb": "get", "resource": "pods"}
_STATUS = ("status.allowed", "status.denied", "spec", "kind", "metadata", "message", "code", "details")

CASES = [
    Case(
        "self",
        post(
            f"{_AUTHORIZATION}/selfsubjectaccessreviews",
            _review("SelfSubjectAccessReview", {"resourceAttributes": _ATTRIBUTES}),
            keep=_STATUS,
        ),
    ),
    Case(
        "self-everything",
        post(
            f"{_AUTHORIZATION}/selfsubjectaccessreviews",
            _review("SelfSubjectAccessReview", {"resourceAttributes": {"verb": "*", "resource": "*", "group": "*"}}),
            keep=_STATUS,
        ),
    ),
    Case(
        "self-path",
        post(
            f"{_AUTHORIZATION}/selfsubjectaccessreviews",
            _review("SelfSubjectAccessReview", {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}),
            keep=_STATUS,
        ),
    ),
    Case("self-nothing", post(f"{_AUTHORIZATION}/selfsubjectaccessreviews", _review("SelfSubjectAccessReview", {}))),
    Case(
        "self-both",
        post(
            f"{_AUTHORIZATION}/selfsubjectaccessreviews",
            _review(
                "SelfSubjectAccessReview",
                {"resourceAttributes": _ATTRIBUTES, "nonResourceAttributes": {"path": "/", "verb": "get"}},
            ),
        ),
    ),
    Case(
        "self-with-metadata",
        post(
            f"{_AUTHORIZATION}/selfsubjectaccessreviews",
            _review("SelfSubjectAccessReview", {"resourceAttributes": _ATTRIBUTES}, metadata={"name": "a"}),
            keep=("code", "reason", "details.causes.*.field"),
        ),
    ),
    Case("self-read", get(f"{_AUTHORIZATION}/selfsubjectaccessreviews")),
    Case(
        "subject-master",
        post(
            f"{_AUTHORIZATION}/subjectaccessreviews",
            _review(
                "SubjectAccessReview", {"user": "jane", "groups": ["system:masters"], "resourceAttributes": _ATTRIBUTES}
            ),
            keep=_STATUS,
        ),
    ),
    Case(
        "subject-nobody",
        post(
            f"{_AUTHORIZATION}/subjectaccessreviews",
            _review("SubjectAccessReview", {"resourceAttributes": _ATTRIBUTES}),
        ),
    ),
    Case(
        "subject-nothing",
        post(f"{_AUTHORIZATION}/subjectaccessreviews", _review("SubjectAccessReview", {"user": "jane"})),
    ),
    Case(
        "local-master",
        post(
            f"{_AUTHORIZATION}/namespaces/{{ns}}/localsubjectaccessreviews",
            _review(
                "LocalSubjectAccessReview",
                {"user": "jane", "groups": ["system:masters"], "resourceAttributes": _ATTRIBUTES},
                metadata={"namespace": "{ns}"},
            ),
            keep=_STATUS,
        ),
    ),
    Case(
        "local-other-namespace",
        post(
            f"{_AUTHORIZATION}/namespaces/{{ns}}/localsubjectaccessreviews",
            _review(
                "LocalSubjectAccessReview",
                {"user": "jane", "resourceAttributes": {**_ATTRIBUTES, "namespace": "elsewhere"}},
            ),
        ),
    ),
    Case(
        "rules",
        post(
            f"{_AUTHORIZATION}/selfsubjectrulesreviews",
            _review("SelfSubjectRulesReview", {"namespace": "{ns}"}),
            keep=["kind", "status.incomplete", "code"],
        ),
    ),
    Case(
        "rules-without-namespace",
        post(
            f"{_AUTHORIZATION}/selfsubjectrulesreviews",
            _review("SelfSubjectRulesReview", {}),
            keep=["kind", "status.incomplete", "message", "code"],
        ),
    ),
    Case(
        "myself",
        post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            keep=["kind", "status.userInfo.groups"],
        ),
    ),
]
