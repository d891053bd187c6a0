"""ConversionReviews that the API server sends for CRDs, and the answers."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import orjson
import pytest

from app.admission import conversion
from app.admission.conversion import Converted, convert_review
from app.admission.conversion_worker import IDLE_SECONDS, SMALL_BYTES, ConversionWorker
from app.admission.metrics import AdmissionMetrics
from app.admission.registry import build_registry
from app.admission.server import AdmissionApp, create_app
from app.api import names
from app.api.conversion import ConversionError, convert
from app.manager.conversion_process import MODULE, conversion_worker
from tests.admission.requests import recorded
from tests.kit.objects import workload_spec
from tests.kube.fakes import virtual
from tests.kube.hostile import chain

JSON = {"Content-Type": "application/json"}


async def posted(app: AdmissionApp, *bodies: bytes) -> list[httpx.Response]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://service") as http:
        return [await http.post("/convert", content=body, headers=JSON) for body in bodies]


def answer(document: Any) -> dict[str, Any]:
    got = convert_review(orjson.dumps(document), convert)
    assert got.status == 200
    answered: dict[str, Any] = json.loads(got.payload)
    return answered


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_a_recorded_review_is_converted_to_the_desired_version(version: str) -> None:
    review = recorded(f"conversion-to-{version}")
    answered = answer(review)
    response = answered["response"]
    assert (answered["kind"], answered["apiVersion"]) == ("ConversionReview", review["apiVersion"])
    assert response["uid"] == review["request"]["uid"]
    assert response["result"] == {"metadata": {}, "status": "Success"}
    assert len(response["convertedObjects"]) == len(review["request"]["objects"])
    for before, after in zip(review["request"]["objects"], response["convertedObjects"], strict=True):
        assert after["apiVersion"] == f"apps.kruise.io/{version}"
        # In the metadata, only labels and annotations may differ.
        for name in ("name", "uid", "generation", "creationTimestamp", "managedFields"):
            assert after["metadata"][name] == before["metadata"][name]


@pytest.mark.behaviour("MGR-50")
def test_an_unknown_kind_fails_the_review() -> None:
    review = recorded("conversion-to-v1alpha1")
    review["request"]["objects"].append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}})
    response = answer(review)["response"]
    assert response["convertedObjects"] is None
    assert response["result"]["status"] == "Failure"
    assert "Deployment" in response["result"]["message"]


@pytest.mark.behaviour("MGR-45", "MGR-50")
def test_objects_in_the_desired_version_are_not_converted() -> None:
    review = recorded("conversion-to-v1alpha1")
    review["request"]["desiredAPIVersion"] = "apps.kruise.io/v1beta1"
    message = answer(review)["response"]["result"]["message"]
    assert message == "conversion is not allowed between same type *v1beta1.SidecarSet"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"desiredAPIVersion": None}, "request.desiredAPIVersion: is required"),
        ({"objects": None}, "request.objects: expected a list"),
        ({"objects": ["x"]}, "request.objects[0]: expected an object"),
        ({"objects": [{}]}, "apiVersion and kind: are required and must be strings"),
    ],
)
def test_an_invalid_request_fails_under_its_uid(changed: dict, message: str) -> None:
    review = recorded("conversion-to-v1alpha1")
    review["request"] |= changed
    result = answer(review)["response"]["result"]
    assert (result["status"], result["message"]) == ("Failure", message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "request body is not JSON"),
        (b"[]", "kind: expected a ConversionReview"),
        (b'{"kind":"ConversionReview","apiVersion":"v7"}', "apiVersion: expected apiextensions.k8s.io/v1, got 'v7'"),
        (b'{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}', "request: expected an object"),
        (
            b'{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{}}',
            "request.uid: is required",
        ),
    ],
)
def test_an_invalid_conversion_review_gets_a_400(body: bytes, message: str) -> None:
    got = convert_review(body, convert)
    assert (got.status, got.outcome) == (400, "not_a_review")
    assert json.loads(got.payload)["message"].startswith(message)


async def test_the_service_converts_and_survives_internal_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_obj: Any, _version: str) -> dict[str, Any]:
        raise RuntimeError("oops")

    review = orjson.dumps(recorded("conversion-to-v1beta1"))

    async def status(function: Any) -> str:
        (got,) = await posted(create_app(build_registry([], lambda _: True), function, AdmissionMetrics()), review)
        return str(got.json()["response"]["result"]["status"])

    for function in (convert, broken, _refusing, _lost):
        assert await status(function) == "Success"
    monkeypatch.setattr(conversion, "convert_review", broken)
    assert await status(convert) == "Failure"


def _refusing(_obj: Any, _version: str) -> dict[str, Any]:
    raise ConversionError("no")


def _lost(_obj: Any, _version: str) -> dict[str, Any]:
    raise RecursionError


def cloneset(name: str = "web", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    known = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "metadata": metadata, "spec": workload_spec()}
    return known | more


def review_of(*objects: dict[str, Any]) -> dict[str, Any]:
    request = {"uid": "u-1", "desiredAPIVersion": "apps.kruise.io/v1alpha1", "objects": list(objects)}
    return {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request}


def listed(got: Converted) -> list[dict[str, Any]]:
    """Return the objects of a list that was converted to v1alpha1."""
    assert (got.status, got.outcome) == (200, "converted")
    response = orjson.loads(got.payload)["response"]
    assert response["result"]["status"] == "Success"
    assert {obj["apiVersion"] for obj in response["convertedObjects"]} == {"apps.kruise.io/v1alpha1"}
    found: list[dict[str, Any]] = response["convertedObjects"]
    return found


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize(
    "bad",
    [
        cloneset("bad", metadata="x"),
        cloneset("bad", spec=[1]),
        cloneset("bad", spec={"updateStrategy": 7, "scaleStrategy": "x", "template": 1}),
        cloneset("bad", metadata={"name": "bad", "labels": "x"}),
        cloneset("bad", metadata={"name": "bad", "annotations": {"a": {"b": 1}, "c": None}}),
        cloneset("bad", spec=None),
        {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet"},
    ],
    ids=lambda bad: json.dumps({key: bad[key] for key in bad if key not in ("apiVersion", "kind")})[:50],
)
def test_one_malformed_object_does_not_fail_a_list(bad: dict[str, Any]) -> None:
    body = orjson.dumps(review_of(cloneset("a"), bad, cloneset("b")))
    first, second, third = listed(convert_review(body, convert))
    assert (first["metadata"]["name"], third["metadata"]["name"]) == ("a", "b")
    assert first["spec"]["updateStrategy"]["type"] == "ReCreate"
    if isinstance(bad.get("metadata"), dict):
        assert second["metadata"]["name"] == "bad"


def test_failed_conversions_are_counted_with_the_object_name() -> None:
    bad = cloneset("bad", spec=[1])
    got = convert_review(orjson.dumps(review_of(bad, cloneset(), bad)), convert)
    assert (got.outcome, got.unconverted) == ("converted", 2)
    assert got.reasons == ("CloneSet shop/bad: spec: expected an object",) * 2


PLACES = {
    "managedFields": (b'"metadata":{"name":"deep"', b'"metadata":{"managedFields":[{"fieldsV1":HERE}],"name":"deep"'),
    "the template": (b'"image":"nginx:1"', b'"image":"nginx:1","args":HERE'),
    "the strategy": (b'"replicas":1', b'"replicas":1,"updateStrategy":{"rollingUpdate":{"partition":HERE}}'),
    "an unknown field": (b'"kind":"CloneSet"', b'"kind":"CloneSet","more":HERE'),
}


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize("levels", [90, 150, 240, 260, 500, 1_000, 1_030, 10_000, 100_000])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_deep_nesting_in_one_object_does_not_fail_a_list(levels: int, place: tuple[bytes, bytes]) -> None:
    deep = orjson.dumps(cloneset("deep")).replace(place[0], place[1].replace(b"HERE", chain(levels)))
    body = orjson.dumps(review_of(cloneset("a"), {"deep": 1}, cloneset("b"))).replace(b'{"deep":1}', deep)
    got = convert_review(body, convert)
    assert (chain(levels) in got.payload, got.unconverted) == (True, 0)
    found = listed(got._replace(parts=[got.payload.replace(chain(levels), b"0")]))
    assert [obj["metadata"]["name"] for obj in found] == ["a", "deep", "b"]
    assert "paused" not in found[1]["spec"]


def test_deep_nesting_outside_objects_is_answered() -> None:
    body = b'{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":' + chain(5_000) + b"}"
    assert convert_review(body, convert).status == 400
    assert convert_review(chain(5_000), convert).status == 400
    assert convert_review(b"[" * 5_000, convert).status == 400


async def test_a_large_review_is_converted_by_another_process() -> None:
    worker = conversion_worker()
    try:
        body = orjson.dumps(review_of(*(cloneset(f"web-{number}") for number in range(500)), cloneset("bad", spec=[])))
        assert len(body) > SMALL_BYTES
        here = convert_review(body, convert)
        got = await worker.answer([body[:70_000], body[70_000:]])
        assert max(map(len, got.parts)) <= 256 * 1024 < len(got.payload)
        assert got._replace(parts=[got.payload]) == here
        assert here.unconverted == 1
        both = await asyncio.gather(worker.answer([body]), worker.answer([orjson.dumps(review_of(cloneset()))]))
        assert (both[0], both[1].outcome) == (got, "converted")
    finally:
        await worker.close()


async def test_a_conversion_process_that_died_is_replaced() -> None:
    worker = conversion_worker()
    body = orjson.dumps(review_of(cloneset()))
    try:
        first = await worker.answer([body])
        await worker.close()
        assert await worker.answer([body]) == first
        process = worker._process
        process.popen.kill()
        await asyncio.to_thread(process.popen.wait)
        assert await worker.answer([body]) == first
    finally:
        await worker.close()


class Slow(ConversionWorker):
    """Answers one review per ``go_on``, without a process."""

    def __init__(self) -> None:
        super().__init__(MODULE)
        self.go_on = asyncio.Semaphore(0)
        self.answered: list[str] = []
        self.stopped = 0

    async def _running(self) -> Any:
        return None

    async def _exchange(self, process: Any, body: Sequence[bytes]) -> Converted:
        await self.go_on.acquire()
        self.answered.append(body[0][:6].decode().strip())
        return Converted(200, [b""], "converted")

    def stop(self) -> None:
        self.stopped += 1


@pytest.mark.behaviour("MGR-153")
async def test_a_small_list_overtakes_large_ones() -> None:
    worker, zeros = Slow(), bytes(30 * 1024 * 1024)
    large = [asyncio.create_task(worker.answer([b"large%d" % number, zeros])) for number in range(8)]
    await asyncio.sleep(0)
    gone = asyncio.create_task(worker.answer([b"gone"]))
    small = [asyncio.create_task(worker.answer([b"small%d" % number])) for number in range(2)]
    await asyncio.sleep(0)
    gone.cancel()
    for _ in range(10):
        worker.go_on.release()
    await asyncio.gather(*large, *small)
    assert worker.answered == ["large0", "small0", "small1", *(f"large{number}" for number in range(1, 8))]
    worker.go_on.release()
    assert (await worker.answer([b"last"])).status == 200
    await worker.close()


@virtual
@pytest.mark.behaviour("MGR-153")
async def test_a_large_list_is_not_overtaken_forever() -> None:
    worker, zeros = Slow(), bytes(30 * 1024 * 1024)
    waiting = [asyncio.create_task(worker.answer(parts)) for parts in ([b"first"], [b"large", zeros])]
    await asyncio.sleep(20)
    waiting.append(asyncio.create_task(worker.answer([b"late"])))
    await asyncio.sleep(0)
    for _ in waiting:
        worker.go_on.release()
    await asyncio.gather(*waiting)
    assert worker.answered == ["first", "large", "late"]
    await worker.close()


@virtual
async def test_the_conversion_process_ends_when_it_is_late_or_idle() -> None:
    """A late answer would be mistaken for the answer to the next review."""
    worker = Slow()
    with pytest.raises(TimeoutError):
        await worker.answer([b"late"])
    assert worker.stopped == 1
    for _ in range(2):
        worker.go_on.release()
        await worker.answer([b"next"])
        await asyncio.sleep(IDLE_SECONDS - 1)
    assert worker.stopped == 1
    await asyncio.sleep(2)
    assert worker.stopped == 2


async def test_the_service_delegates_large_reviews() -> None:
    sizes: list[int] = []

    class Recording(ConversionWorker):
        async def answer(self, parts: Sequence[bytes]) -> Converted:
            sizes.append(sum(map(len, parts)))
            return convert_review(b"".join(parts), convert)

    app = create_app(build_registry([], lambda _: True), convert, AdmissionMetrics(), Recording(MODULE))
    small, large = (orjson.dumps(review_of(*(cloneset(f"web-{n}") for n in range(count)))) for count in (1, 700))
    found = [got.content for got in await posted(app, small, large)]
    assert found == [convert_review(body, convert).payload for body in (small, large)]
    assert sizes == [len(large)]
    assert len(found[1]) > 256 * 1024  # sent in chunks


@pytest.mark.behaviour("MGR-50")
async def test_conversions_are_counted_and_each_bad_object_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics, worker = AdmissionMetrics(), ConversionWorker("app.kube.text")  # exits without an answer
    app = create_app(build_registry([], lambda _: True), convert, metrics, worker)
    body = orjson.dumps(review_of(cloneset(), *(cloneset(name, spec=[]) for name in ("bad", "worse"))))
    large = orjson.dumps(review_of(*(cloneset(f"web-{number}") for number in range(700))))
    *_, got = await posted(app, body, body, large)
    await worker.close()
    stats = metrics.path("/convert")
    assert stats.decisions == {("convert", "converted"): 2, ("convert", "unconverted"): 4, ("convert", "error"): 1}
    assert stats.panics == 1
    assert got.json()["response"]["uid"] == "u-1"
    assert "conversion failed: " in got.json()["response"]["result"]["message"]
    assert caplog.text.count("/convert returned 2 objects unconverted") == 1
    with pytest.raises(OSError):
        await worker.answer([large])


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize(
    "filling",
    [
        b"[%b]" % b",".join([b"{}" + b" " * 30] * 401_000),
        b'"%b"' % (b"x" * 3_200_000),
        b"[%b]" % b",".join([b"{}"] * 3_000_000),
    ],
    ids=["values", "bytes", "values for the length"],
)
def test_oversized_reviews_are_refused_before_objects_are_built(filling: bytes) -> None:
    body = orjson.dumps(recorded("conversion-to-v1alpha1")).replace(b'"spec":{', b'"x":' + filling + b',"spec":{', 1)
    got = convert_review(body, convert)
    assert (got.status, b"larger than the API server's limit for an object" in got.payload) == (200, True)


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize(
    "objects", [b"{}", b"0", b"[]", b'{"a":[]}', b'{"a":{}}'], ids=["nothing", "numbers", "lists", "small", "smaller"]
)
def test_a_huge_list_of_empty_values_is_refused(objects: bytes) -> None:
    body = orjson.dumps({**recorded("conversion-to-v1alpha1")})
    request = orjson.loads(body)["request"]
    empty = body.replace(orjson.dumps(request["objects"]), b"[%b]" % b",".join([objects] * 500_000))
    got = convert_review(empty, convert)
    assert (got.status, b"too many values" in got.payload) == (400, True)


@pytest.mark.behaviour("MGR-50")
def test_bare_values_among_objects_do_not_fail_a_list() -> None:
    """Neither the maximum nesting that admission allows nor one level more may hide other objects."""
    review = recorded("conversion-to-v1alpha1")
    (one, *_) = review["request"]["objects"]

    def dense(name: str, values: int) -> dict[str, Any]:
        spec = {**one["spec"], "scaleStrategy": {"podsToDelete": ["a"] * values}}
        return {**one, "metadata": {**one["metadata"], "name": name}, "spec": spec}

    review["request"]["objects"] = [one, dense("a", 300_000), dense("b", 300_000), dense("c", 450_000), one]
    got = convert_review(orjson.dumps(review), convert)
    assert [obj["metadata"]["name"] for obj in listed(got)] == [
        one["metadata"]["name"],
        *"abc",
        one["metadata"]["name"],
    ]
    assert got.unconverted == 1


def _path(steps: int) -> str:
    return orjson.dumps({"path": ["spec", *["a"] * steps], "value": 1}).decode()


def _note(change: str) -> str:
    return f'{{"changes":[[{change}]],"version":"v1alpha1"}}'


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize(
    "note",
    [
        _note(_path(5_000)),
        _note(_path(200)),
        _note(f'{{"path":["spec","x"],"value":{"[" * 900}{"]" * 900}}}'),
        _note(f'{{"path":["spec","x"],"value":{"[" * 240}{"]" * 240}}}'),
        _note(f'{{"path":["spec","x"],"value":{10**30}}}'),
        _note(r'{"path":["spec","x"],"value":"\ud800"}'),
        _note(r'{"path":["spec","\ud800"],"value":1}'),
        _note('{"path":["spec","x"],"value":NaN}'),
        _note('{"path":["spec"],"value":3}'),
        _note('{"path":["spec","template"],"value":[]}'),
        "[" * 100_000,
    ],
    ids=[
        "path",
        "shorter path",
        "value",
        "less deep",
        "number",
        "text",
        "key",
        "NaN",
        "no spec",
        "no template",
        "open",
    ],
)
def test_a_handwritten_note_does_not_fail_a_list(note: str) -> None:
    """Users can set any annotation on their objects, and a list contains the objects of all users."""
    review = recorded("conversion-to-v1alpha1")
    (one, *_) = review["request"]["objects"]
    annotations = {**one["metadata"].get("annotations", {}), names.CONVERSION_DATA: note}
    bad = {**one, "metadata": {**one["metadata"], "name": "odd", "annotations": annotations}}
    review["request"]["objects"] = [one, bad, one]
    first, _, third = listed(convert_review(orjson.dumps(review), convert))
    assert first == third == orjson.loads(orjson.dumps(convert(one, "apps.kruise.io/v1alpha1")))


def too_deep() -> dict[Any, str]:
    """Fail like the conversion of an object that becomes too deep."""
    raise RecursionError("maximum recursion depth exceeded")


def unwritable() -> dict[Any, str]:
    return {1.5: "no key of JSON"}


@pytest.mark.behaviour("MGR-50")
@pytest.mark.parametrize("odd", [too_deep, unwritable])
def test_an_object_that_cannot_be_converted_or_written_does_not_fail_a_list(odd: Callable[[], dict[Any, str]]) -> None:
    def converting(obj: dict[str, Any], version: str) -> dict[str, Any]:
        return {**convert(obj, version), **(odd() if obj["metadata"]["name"] == "odd" else {})}

    review = recorded("conversion-to-v1alpha1")
    (one, *_) = review["request"]["objects"]
    bad = {**one, "metadata": {**one["metadata"], "name": "odd"}}
    review["request"]["objects"] = [one, bad, one]
    got = convert_review(orjson.dumps(review), converting)
    assert [obj["metadata"]["name"] for obj in listed(got)] == [one["metadata"]["name"], "odd", one["metadata"]["name"]]
    assert got.unconverted == 1


@pytest.mark.behaviour("MGR-50")
def test_invalid_json_after_a_deep_object_is_a_bad_request() -> None:
    def deep(_obj: dict[str, Any], _version: str) -> dict[str, Any]:
        raise RecursionError

    review = recorded("conversion-to-v1alpha1")
    (one, *_) = review["request"]["objects"]
    review["request"]["objects"] = [one, {**one, "kind": "HERE"}]
    got = convert_review(orjson.dumps(review).replace(b'"HERE"', rb'"\ud800"'), deep)
    assert (got.status, got.outcome) == (400, "not_a_review")


def test_endless_nesting_is_a_bad_request() -> None:
    got = convert_review(b'{"a":' * 300_000, convert)
    assert (got.status, b"a deeply nested value is not closed" in got.payload) == (400, True)
