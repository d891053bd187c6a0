"""The query language of label selectors (``app=web,tier in (a,b),!old``), parsed to key, operator and values.

The grammar and its leniencies are those of apimachinery's ``labels.Parse``: ``x in ()`` holds the empty value, ``a,``
is an error, keywords may be values, and whitespace separates words. Label syntax is checked by
:mod:`app.kube.selectors`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.kube.gotext import quote

_SPECIAL = re.compile(r"==|!=|=|!|\(|\)|,|>|<")
_BINARY = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_MAX_LENGTH = 64 * 1024


class SelectorError(ValueError):
    """A selector that cannot be used: an unknown operator, a key or value against the label syntax, a query that does
    not follow the grammar."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    word: bool

    def is_(self, symbol: str) -> bool:
        return not self.word and self.text == symbol


_END = _Token("", word=False)


def _tokens(text: str) -> list[_Token]:
    if len(text) > _MAX_LENGTH:
        raise SelectorError(f"selector is longer than {_MAX_LENGTH} characters")
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char in " \t\r\n":
            position += 1
        elif special := _SPECIAL.match(text, position):
            tokens.append(_Token(special.group(), word=False))
            position = special.end()
        else:
            end = position + 1
            while end < len(text) and text[end] not in "=!(),>< \t\r\n":
                end += 1
            tokens.append(_Token(text[position:end], word=True))
            position = end
    return [*tokens, _END]


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def peek(self) -> _Token:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def take(self) -> _Token:
        token = self.peek()
        self._at += 1
        return token

    def requirements(self) -> list[tuple[str, str, tuple[str, ...]]]:
        found: list[tuple[str, str, tuple[str, ...]]] = []
        if self.peek() is _END:
            return found
        while True:
            found.append(self.requirement())
            token = self.take()
            if token is _END:
                return found
            if not token.is_(","):
                raise SelectorError(f"found {quote(token.text)}, expected: ',' or 'end of string'")

    def requirement(self) -> tuple[str, str, tuple[str, ...]]:
        negated = self.peek().is_("!")
        if negated:
            self.take()
        key = self.take()
        if not key.word:
            raise SelectorError(f"found {quote(key.text)}, expected: identifier")
        if self.peek() is _END or self.peek().is_(","):
            return key.text, "DoesNotExist" if negated else "Exists", ()
        if negated:
            raise SelectorError(
                f"found {quote(self.peek().text)} after '!{key.text}', expected: ',' or 'end of string'"
            )
        word = self.take()
        operator = _BINARY.get(word.text)
        if operator is None:
            raise SelectorError(f"found {quote(word.text)}, expected: in, notin, =, ==, !=, >, <")
        return key.text, operator, self.values() if word.word else (self.exact_value(),)

    def exact_value(self) -> str:
        token = self.peek()
        if token is _END or token.is_(","):
            return ""
        if not token.word:
            raise SelectorError(f"found {quote(token.text)}, expected: identifier")
        return self.take().text

    def values(self) -> tuple[str, ...]:
        if not self.take().is_("("):
            raise SelectorError("expected: '(' after 'in' and 'notin'")
        values = {""} if self.peek().is_(")") or self.peek().is_(",") else set()
        while not self.peek().is_(")"):
            token = self.take()
            if token.word:
                values.add(token.text)
                if not (self.peek().is_(",") or self.peek().is_(")")):
                    raise SelectorError(f"found {quote(self.peek().text)}, expected: ',' or ')'")
            elif not token.is_(","):
                raise SelectorError(f"found {quote(token.text)}, expected: ',', ')' or identifier")
            elif self.peek().is_(")"):
                values.add("")
            elif self.peek().is_(","):
                # Two commas hold one empty value, and something must follow them.
                self.take()
                values.add("")
                if self.peek().is_(")"):
                    raise SelectorError("found ')', expected: ',' or identifier")
        self.take()
        return tuple(sorted(values))


def parse(text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """The requirements of ``text`` as (key, operator, values), operators in LabelSelector's words or Gt and Lt.

    Raises :class:`SelectorError`.
    """
    return _Parser(text).requirements()
