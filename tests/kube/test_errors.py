import orjson
import pytest

from app.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    RequestInfo,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
    api_error,
    describe,
    sentence,
)
from tests.kube.fakes import status_body

REQUEST = RequestInfo("POST", "/api/v1/namespaces/shop/pods")


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", BadRequest),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (410, "Gone", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (503, "", ServerError),
        (409, "", Conflict),
        (418, "", ApiError),
    ],
)
def test_refusals_are_classified_by_reason_and_code(code, reason, kind):
    error = api_error(REQUEST, code, orjson.dumps(status_body(code, reason, "no")))
    assert type(error) is kind
    assert (error.code, error.reason, error.message) == (code, reason, "no")
    assert error.request is REQUEST


def test_a_patch_with_the_uid_of_another_object_conflicts():
    details = {"causes": [{"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]}
    error = api_error(REQUEST, 422, orjson.dumps(status_body(422, "Invalid", "no", details=details)))
    assert (type(error), error.code) == (Conflict, 422)


def test_the_message_names_the_request_and_what_the_server_said():
    cause = {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}
    details = {"name": "web", "kind": "Pod", "retryAfterSeconds": 3, "causes": [cause]}
    body = status_body(422, "Invalid", 'Pod "web" is invalid: spec.containers: Required value', details=details)
    error = api_error(REQUEST, 422, orjson.dumps(body), "7")
    assert str(error) == (
        'POST /api/v1/namespaces/shop/pods: Pod "web" is invalid: spec.containers: Required value (Invalid, 422)'
    )
    assert error.causes[0].field == "spec.containers"
    assert error.status.details is not None
    assert error.status.details.retry_after_seconds == 3
    assert error.retry_after == 7


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"", "HTTP 502"),
        (b"\xff\xfe", "��"),
        (b'{"kind":"Pod"}', '{"kind":"Pod"}'),
        (b"[1,2]", "[1,2]"),
        (b'{"kind":"Status","code":"no number"}', '{"kind":"Status","code":"no number"}'),
    ],
)
def test_a_response_without_status_is_still_an_error(body, message):
    error = api_error(REQUEST, 502, body, "soon")
    assert isinstance(error, ServerError)
    assert (error.code, error.message, error.retry_after) == (502, message, None)


def test_a_broken_connection_is_reported_without_the_request():
    error = TransportError(RequestInfo("GET", "/api/v1/pods"), "cannot connect to https://k: Connection refused")
    assert sentence(error) == "cannot connect to https://k: Connection refused"
    assert str(error).startswith("GET /api/v1/pods: cannot")


def test_objects_are_named_with_their_kind():
    assert describe("Pod", "shop", "web-0") == "Pod shop/web-0"
    assert describe("SidecarSet", None, "log") == "SidecarSet log"
