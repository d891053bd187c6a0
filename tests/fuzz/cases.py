"""Numbered cases: the same seed and number give the same case on any machine, in any order."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Final

from app.admission.registry import Registry
from tests.fuzz import heads, notes, objects, targets

#: One case in this many has a body of megabytes.
LARGE_EVERY: Final = 500
LARGE_BYTES: Final = 3_000_000


@dataclass(frozen=True)
class Case:
    """A target and its input. For HTTP heads, ``pieces`` arrive on a new connection."""

    number: int
    what: str
    path: str = ""
    body: bytes = b""
    decoder: str = ""
    pieces: list[bytes] = field(default_factory=list)
    #: An object with a conversion note, and the version it is converted to.
    noted: tuple[objects.Json, str] | None = None


class Cases:
    def __init__(self, registry: Registry, seed: int) -> None:
        self._seed = seed
        self._questions = targets.questions(registry)
        self._paths = sorted({asked.path for asked in self._questions} | set(registry.aliases) | {"/convert", "/other"})
        self._conversions = targets.conversions()
        self._decoders = sorted(targets.decoders())
        self._resources = {f"cache of {one.name}": one.resource for one in targets.watched()}

    def case(self, number: int) -> Case:
        random = Random(f"{self._seed}:{number}")
        if number % LARGE_EVERY == 0:
            return self._large(random, number)
        kind = random.random()
        if kind < 0.35:
            asked = next(objects.reviews(random.getrandbits(48)))
            return Case(number, asked.what, asked.path, asked.body)
        if kind < 0.70:
            return self._question(random, number)
        if kind < 0.82:
            return self._conversion(random, number)
        if kind < 0.92:
            return Case(number, "HTTP", pieces=heads.stream(random))
        return self._decoding(random, number)

    def _question(self, random: Random, number: int) -> Case:
        asked = random.choice(self._questions)
        right = targets.good(random, asked)
        made = objects.hostile(random, right) if random.random() < 0.9 else objects.Hostile("right", right)
        old = None
        if asked.operation.value in ("UPDATE", "DELETE"):
            old = objects.hostile(random, targets.good(random, asked), changes=2).object
        version = {"group": asked.group, "version": asked.version}
        request = {
            "uid": "fuzz",
            "kind": {**version, "kind": right.get("kind", "")},
            "resource": {**version, "resource": asked.plural},
            "subResource": asked.subresource,
            "operation": asked.operation.value,
            "namespace": random.choice(("default", "", "kube-system")),
            "name": random.choice(("sample", "")),
            "userInfo": {"username": "tenant"},
            "object": None if asked.operation.value == "DELETE" else made.object,
            "oldObject": old,
            "dryRun": random.random() < 0.5,
            "options": {},
        }
        document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        what = f"{asked.operation.value} {asked.group}/{asked.version} {asked.plural}: {made.what}"
        document, what = _sometimes_broken(random, document, what)
        path = asked.path if random.random() < 0.97 else random.choice(self._paths)
        return Case(number, what, path, objects.encode(document))

    def _conversion(self, random: Random, number: int) -> Case:
        one = random.choice(self._conversions)
        said, converted = [], []
        if one.api_version != one.desired and random.random() < 0.3:
            right = targets.filled(random, one.schema, one.api_version, one.kind)
            noted = notes.with_note(random, right, one.desired)
            what = f"{one.kind} {one.api_version} to {one.desired} with a note"
            body = objects.encode(_conversion_review(one.desired, [noted]))
            return Case(number, what, "/convert", body, noted=(noted, one.desired))
        for _ in range(random.choice((1, 1, 2, 5))):
            right = targets.filled(random, one.schema, one.api_version, one.kind)
            made = objects.hostile(random, right, changes=2) if random.random() < 0.8 else objects.Hostile("", right)
            said.append(made.what)
            converted.append(made.object)
        what = f"{one.kind} {one.api_version} to {one.desired}: {' | '.join(said)}"
        document, what = _sometimes_broken(random, _conversion_review(one.desired, converted), what)
        return Case(number, what, "/convert", objects.encode(document))

    def _decoding(self, random: Random, number: int) -> Case:
        decoder = random.choice(self._decoders)
        made = objects.hostile(random, self._decodable(random, decoder))
        body = objects.encode(made.object)
        if random.random() < 0.1:
            at = random.randrange(len(body))
            body = body[:at] + random.randbytes(2) + body[at + 1 :]
        return Case(number, f"{decoder}: {made.what}", body=body, decoder=decoder)

    def _decodable(self, random: Random, decoder: str) -> objects.Json:
        """Return an object of the decoder's kind, if known; sometimes one of another kind."""
        resource = self._resources.get(decoder)
        if resource is not None and random.random() < 0.8:
            if resource.kind == "Pod":
                return objects.pod()
            known = targets.recorded(random, resource, resource.version)
            if known is not None:
                return known
        return targets.good(random, random.choice(self._questions))

    def _large(self, random: Random, number: int) -> Case:
        index = number // LARGE_EVERY
        plain = _LARGE_BODIES[index % len(_LARGE_BODIES)] if index % 4 == 0 else None
        if plain is not None:
            what, opening, item, closing = plain
            count = (6 * 1024 * 1024) // len(item)
            if index % 8 == 0:
                start = b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"fuzz",'
                start += b'"desiredAPIVersion":"apps.kruise.io/v1alpha1","objects":'
                if random.random() < 0.5:
                    start += b"[" + objects.encode(objects.clone_set())[:-1] + b',"x":'
                    closing = closing.removesuffix(b"}}") + b"}]}}"
                return Case(number, what, "/convert", start + opening + item * count + closing)
            start = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"fuzz","object":'
            return Case(number, what, random.choice(self._paths), start + opening + item * count + closing)
        made = objects.large_pod(index, LARGE_BYTES)
        document = objects.review(objects.TARGETS[0], made.object)
        return Case(number, f"3 MB Pod: {made.what}", "/mutate-pod", json.dumps(document).encode())


def _conversion_review(desired: str, converted: list[objects.Json]) -> objects.Json:
    request = {"uid": "fuzz", "desiredAPIVersion": desired, "objects": converted}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


def _sometimes_broken(random: Random, review: objects.Json, what: str) -> tuple[objects.Json, str]:
    if random.random() >= 0.1:
        return review, what
    broken = objects.hostile(random, review, changes=2)
    return broken.object, f"review: {broken.what}"


#: Bodies that take many times their size when decoded: name, beginning, repeated item, and end.
_LARGE_BODIES: Final = (
    ("a list of empty objects", b"[", b"{},", b"{}]}}"),
    ("a list of lists", b"[", b"[0],", b"0]}}"),
    ("a list of numbers and no UTF-8", b"[", b"0,", b'"\xff"]}}'),
    ("a long key before a list and no UTF-8", b'{"%b":[' % (b"k" * 100_000), b"0,", b'"\xff"]}}}'),
    ("opened lists", b"", b"[", b""),
    ("opened objects", b"", b'{"a":', b""),
    ("an object with many keys", b"{", b'"aaaa":{},', b'"":0}}}'),
    ("an unterminated string", b'"', b"aaaaaaaaaa", b""),
    ("commas in a string", b'"', b",[{,", b'"}}'),
    ("lone surrogates", b"[", b'"\\ud800",', b"0]}}"),
    ("spaces", b"", b" ", b"1}}"),
)
