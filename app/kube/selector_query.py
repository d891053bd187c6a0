"""The query language of label selectors (``app=web,tier in (a,b),!old``), parsed into key, operator and values.

The grammar is that of apimachinery's ``labels.Parse``, with its peculiarities: ``x in ()`` contains the empty value,
``a,`` is an error, keywords may be values, and whitespace separates words. :mod:`app.kube.selectors` checks label
syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.kube.fielderrors import quote
from app.kube.validation import is_qualified_name

_SPECIAL = re.compile(r"==|!=|=|!|\(|\)|,|>|<")
_BINARY = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_MAX_LENGTH = 64 * 1024


class SelectorError(ValueError):
    """An invalid selector: an unknown operator, an invalid key or value, or a query that violates the grammar."""


def in_requirement(error: SelectorError) -> SelectorError:
    """Return the error with the prefix that apimachinery uses for a requirement of a query."""
    return SelectorError(f"unable to parse requirement: {error}")


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
        if not (self.peek().word or self.peek().is_("!")):
            raise SelectorError(f"found '{self.peek().text}', expected: !, identifier, or 'end of string'")
        while True:
            try:
                found.append(self.requirement())
            except SelectorError as error:
                raise in_requirement(error) from None
            token = self.take()
            if token is _END:
                return found
            if not token.is_(","):
                raise SelectorError(f"found '{token.text}', expected: ',' or 'end of string'")
            if not (self.peek().word or self.peek().is_("!")):
                raise SelectorError(f"found '{self.peek().text}', expected: identifier after ','")

    def requirement(self) -> tuple[str, str, tuple[str, ...]]:
        negated = self.peek().is_("!")
        if negated:
            self.take()
        key = self.take()
        if not key.word:
            raise SelectorError(f"found '{key.text}', expected: identifier")
        if messages := is_qualified_name(key.text):
            raise SelectorError(f"<nil>: Invalid value: {quote(key.text)}: {'; '.join(messages)}")
        if self.peek() is _END or self.peek().is_(","):
            return key.text, "DoesNotExist" if negated else "Exists", ()
        word = self.take()
        operator = _BINARY.get(word.text)
        if operator is None:
            raise SelectorError(f"found '{word.text}', expected: in, notin, =, ==, !=, gt, lt")
        if negated:
            raise SelectorError(f"found '{word.text}' after '!{key.text}', expected: ',' or 'end of string'")
        return key.text, operator, self.values() if word.word else (self.exact_value(),)

    def exact_value(self) -> str:
        token = self.peek()
        if token is _END or token.is_(","):
            return ""
        if not token.word:
            raise SelectorError(f"found '{token.text}', expected: identifier")
        return self.take().text

    def values(self) -> tuple[str, ...]:
        opening = self.take()
        if not opening.is_("("):
            raise SelectorError(f"found '{opening.text}' expected: '('")
        first = self.peek()
        if not (first.word or first.is_(",") or first.is_(")")):
            raise SelectorError(f"found '{first.text}', expected: ',', ')' or identifier")
        values = {""} if self.peek().is_(")") or self.peek().is_(",") else set()
        while not self.peek().is_(")"):
            token = self.take()
            if token.word:
                values.add(token.text)
                if not (self.peek().is_(",") or self.peek().is_(")")):
                    raise SelectorError(f"found '{self.peek().text}', expected: ',' or ')'")
            elif not token.is_(","):
                raise SelectorError(f"found '{token.text}', expected: ',', or identifier")
            elif self.peek().is_(")"):
                values.add("")
            elif self.peek().is_(","):
                # Two commas stand for one empty value, and another token must follow.
                self.take()
                values.add("")
                if self.peek().is_(")"):
                    raise SelectorError("found ')', expected: ',' or identifier")
        self.take()
        return tuple(sorted(values))


def parse(text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the requirements of ``text`` as (key, operator, values). Operators are those of LabelSelector, or Gt and
    Lt.

    Raises :class:`SelectorError`.
    """
    return _Parser(text).requirements()
