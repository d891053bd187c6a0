"""Random expressions of a resourcesPolicy: most have a value, the broken ones have none."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.property.case import Json


def any_expression(random_: random.Random, resource: str) -> str:
    """Return an expression over one variable that is most likely positive."""
    return _Expressions(random_, resource).quantity(random_.choice((0, 1, 1, 2, 3)))


class _Expressions:
    def __init__(self, random_: random.Random, resource: str) -> None:
        self.random, self.resource = random_, resource
        self.amounts = ("50m", "100m", "1", "0.5", "2k") if resource == "cpu" else ("10Mi", "64Mi", "1Gi", "100M", "5k")

    def number(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.7:
            return self.random.choice(("50%", "10%", "33%", "2", "3", "0.5", ".25", "1e0", "2.5"))
        one, other = self.number(depth - 1), self.number(depth - 1)
        form = self.random.choice(("({} + {})", "({} * {})", "max({}, {})", "min({},{})", "({} - -{})", "({} / {})"))
        return form.format(one, other)

    def quantity(self, depth: int) -> str:
        if depth <= 0:
            return self.random.choice((self.resource, self.resource, self.random.choice(self.amounts), self.number(0)))
        one = self.quantity(depth - 1)
        forms: list[Callable[[], str]] = [
            lambda: f"({one}) * {self.number(depth - 1)}" if " " in one else f"{one}*{self.number(depth - 1)}",
            lambda: f"{self.number(depth - 1)} * ({self.resource})",
            lambda: f"({one})/{self.random.choice(('2', '3', '7', '50%'))}",
            lambda: f"{one} + {self.random.choice((self.random.choice(self.amounts), '1', '.5', self.resource))}",
            lambda: f"{self.big()} - {self.random.choice((self.resource, '1', self.amounts[0]))}",
            lambda: f"max({one}, {self.random.choice(self.amounts)})",
            lambda: f"MAX({one}, {self.random.choice((self.number(0), self.resource))})",
            lambda: f"min({one}, {self.big()})",
            lambda: f"Min({one}, {self.big()})",
            lambda: f"max({self.resource} - {self.big()}, {self.random.choice(self.amounts)})",
            lambda: f"-{self.resource} + {self.big()}",
        ]
        return self.random.choice(forms)()

    def big(self) -> str:
        """Return a quantity larger than any aggregate of a case."""
        return "30" if self.resource == "cpu" else "64Gi"


def _other(resource: str) -> str:
    return {"cpu": "memory", "memory": "cpu"}[resource]


#: Repeated so that each kind of error is equally frequent.
BROKEN: list[Callable[[str], str]] = [
    lambda resource: f"({resource} + 1) * 2Mi",
    lambda resource: f"1/(100m + {resource})",
    lambda resource: f"({resource} + 2)/0",
    lambda resource: f"{resource} - 100G",
    lambda resource: f"{resource.upper()}*50% + {_other(resource)}",
]

LIMIT_BELOW_REQUEST: Json = {
    "limits": {"cpu": "cpu*10%", "memory": "memory/7"},
    "requests": {"cpu": "max(cpu, 10)", "memory": "max(memory*50%, 8Gi)"},
}
