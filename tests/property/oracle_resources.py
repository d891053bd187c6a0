"""Computed resources of a sidecar (A6, SS-60 to SS-67)."""

from __future__ import annotations

import re

from tests.property.case import Json
from tests.property.oracle_basics import Refused, State
from tests.property.oracle_quantity import BadExpression, Quantity, evaluate, parse


def computed_resources(state: State, policy: Json, sidecar_names: set[str]) -> Json:
    """Return the whole ``resources`` of a sidecar with this policy."""
    return _Resources(state, sidecar_names).computed_resources(policy)


class _Resources:
    def __init__(self, state: State, sidecar_names: set[str]) -> None:
        self.state, self.sidecar_names = state, sidecar_names

    def targets(self, pattern: str) -> list[Json]:
        """Return the containers whose resources are aggregated. [SS-61]"""
        found = []
        inits = self.state.spec.get("initContainers") or []
        for container in [*inits, *(self.state.spec.get("containers") or [])]:
            init = any(container is c for c in inits)
            if init and container.get("restartPolicy") != "Always":
                self.state.branches.hit("SS-61 plain init container is no target")
            elif container["name"] in self.sidecar_names:
                self.state.branches.hit("SS-61 name of a sidecar left out")
            elif not re.search(pattern, container["name"]):
                self.state.branches.hit("SS-61 name does not match")
            else:
                kind = "restartable init container" if init else "container"
                self.state.branches.hit(f"SS-61 {kind} is a target")
                found.append(container)
        return found

    def computed_resources(self, policy: Json) -> Json:
        targets = self.targets(policy.get("targetContainersNameRegex") or ".*")
        if not targets:
            raise Refused("SS-61 no target refused")
        summed = policy["targetContainersMode"] == "sum"
        result: Json = {"limits": {}, "requests": {}}
        amounts: dict[tuple[str, str], Quantity] = {}
        for kind in ("limits", "requests"):
            for resource in ("cpu", "memory"):
                expression = ((policy.get("resourcesExpr") or {}).get(kind) or {}).get(resource)
                if not expression:
                    self.state.branches.hit("SS-63 no expression" if expression is None else "SS-63 empty expression")
                    continue
                aggregate = self.aggregate(targets, kind, resource, summed=summed)
                if aggregate is None:
                    self.state.branches.hit("SS-63 limit dropped")
                    if resource not in expression:
                        self.state.branches.hit("SS-63 constant limit dropped")
                    continue
                amounts[kind, resource] = self.amount(expression, resource, aggregate)
                self.state.branches.hit(f"SS-63 {kind[:-1]} computed")
                if kind == "requests" and amounts[kind, resource].value == 0:
                    self.state.branches.hit("SS-63 explicit request 0")
        for resource in ("cpu", "memory"):
            limit, request = amounts.get(("limits", resource)), amounts.get(("requests", resource))
            if limit is not None and request is not None and limit.value < request.value:
                # SS-67 (better): a limit below its request is raised to it.
                self.state.branches.hit("SS-67 limit below request")
                amounts["limits", resource] = request
        for (kind, resource), amount in amounts.items():
            result[kind][resource] = amount.text()
        return {kind: values for kind, values in result.items() if values}

    def aggregate(self, targets: list[Json], kind: str, resource: str, *, summed: bool) -> Quantity | None:
        """Aggregate requests or limits; return None if a target lacks the limit. [SS-62]"""
        total = Quantity(parse("0").value)
        for target in targets:
            given = ((target.get("resources") or {}).get(kind) or {}).get(resource)
            if given is None and kind == "limits":
                self.state.branches.hit("SS-62 one target without limit")
                return None
            if given is None:
                self.state.branches.hit("SS-62 missing request is 0")
                continue
            amount = parse(given)
            if summed:
                total = total + amount
            elif amount.value > total.value:
                total = amount
        what = "limit" if kind == "limits" else "request"
        self.state.branches.hit(f"SS-62 {what}s summed" if summed else f"SS-62 largest {what}")
        return total

    def amount(self, expression: str, resource: str, aggregate: Quantity) -> Quantity:
        try:
            result = evaluate(expression, resource, aggregate, self.state.branches)
        except BadExpression as bad:
            raise Refused(bad.branch) from None
        if resource == "memory" and result.value.denominator != 1:
            # SS-67 (better): memory is rounded up to whole bytes.
            self.state.branches.hit("SS-67 memory rounded up to bytes")
            result = Quantity(result.value.__ceil__() + parse("0").value, result.binary)
        return result
