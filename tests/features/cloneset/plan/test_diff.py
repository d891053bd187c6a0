"""Worked examples of the diff: numbers of Pods to create, delete and update."""

import re

import pytest

from app.features.cloneset.plan.diff import Diff, PodCounts, diff
from app.features.cloneset.plan.settings import RollingUpdate, Settings, limits, partition_count

pytestmark = pytest.mark.behaviour("CS-84", "CS-85", "CS-86", "CS-87", "CS-88", "CS-89", "CS-90", "CS-91", "CS-92")

# Pods: o/n old/new and available; ! not ready, ~ ready but not yet available; † marked; PD/PU preparing a deletion or
# an update. Results: create/old/limit, delete/old, deleteReadyLimit, surge/old, update,max; blank is zero.
# OpenKruise never deletes the marked Pod of W53.
EXAMPLES = """
W1|R5|-|0,0,1,0|5/0/5||||
W2|R5|5n|0,0,1,0|||||
W3|R7 smu2|3n|0,0,1,0|4/0/2||||
W4|R7 smu2|3n 1n!|0,0,1,1|3/0/1||||
W5|R7 smu2|3n 2n!|0,0,1,2|2/0/0||||
W6|R12 mu20% smu10%|4n|0,0,3,0|8/0/2||||
W7|R4 part3|2o 1n|3,0,1,0|1/1/1||||
W8|R10 mu20% part5|4o 1n|5,0,2,0|5/1/5||||
W9|R10 mu20%|6o|0,0,2,0|4/0/4||||6,-2
W10|R3 mu20%|5n|0,0,1,0||2/0|3||
W11|R3 mu20%|4n 1n!|0,0,1,1||2/0|2||
W12|R3|5n~|0,0,1,5||2/0|0||
W13|R4 part2|3o 3n|2,0,1,0||2/1|3||
W14|R4|3o 3n|0,0,1,0||2/3|3||1,3
W15|R6|6o|0,0,1,0|||||6,1
W16|R10 mu20% part30%|10o|3,0,2,0|||||7,2
W17|R10 mu25%|10o|0,0,3,0|||||10,3
W18|R10 mu25% ms1|10o|0,1,2,0|1/0/1|||1/0|10,2
W19|R10 mu25% ms25%|10o|0,3,2,0|3/0/3|||3/0|10,2
W20|R10 mu25% ms25%|10o 3n!|0,3,2,3||||3/0|7,5
W21|R10 mu25% ms25%|10o 3n|0,3,2,0||||3/0|7,5
W22|R10 mu25% ms25%|1o 12n|0,3,2,0||3/1|5|0/0|
W23|R10 mu25% ms25%|13n|0,3,2,0||3/0|5|0/0|
W24|R4 mu0 ms2 part50%|4o|2,2,0,0|2/0/2|||2/0|2,0
W25|R4 mu0 ms2 part50%|4o 2n|2,2,0,0||2/2|2|0/0|
W26|R4 mu0 ms2 part50%|2o 2o† 2n|2,2,0,0|||2|2/2|
W27|R4 mu0 ms2 paused|4o|0,0,0,0|||||4,0
W28|R6 ms2 paused|4o|0,0,1,0|2/0/2||||4,-1
W29|R3 paused|4o 1n|0,0,1,0||2/4|3||2,3
W30|R5 mu2|3n 2n†|0,0,2,0|||2||
W31|R5|3n 1n! 1n†|0,0,1,1|||0||
W32|R5 ms1|3n 1n! 1n†|0,1,1,1|1/0/1||0|1/0|
W33|R5 mu2 ms1|3n 1n! 1n†|0,1,2,1|||1|0/0|
W34|R5 ms1|4n 1n!†|0,1,1,0|||1||
W35|R4|4n 1n†|0,0,1,0||0/0|2||
W36|R4|3n 2n†|0,0,1,0||0/0|2||
W37|R5|4n 1nPD†|0,0,1,1|||||
W38|R5 excludePD|4n 1nPD†|0,0,1,1|1/0/1||||
W39|R5 excludePD smu1|4n 1nPD†|0,0,1,1|1/0/0||||
W40|R5|4o 1oPD†|0,0,1,1|||||4,1
W41|R5 mu2 part4|1o 4n|4,0,2,0|||||0
W42|R5 mu2 part4 rollback|1o 4n|4,0,2,0|||||-3,2
W43|R5 ms1 part5 rollback|5n|5,1,1,0|1/6/1|||1/1|-5,1
W44|R5 mu2 part4 rollback same|1o 4n|4,0,2,0|||||0
W45|R5 part99%|5o|4,0,1,0|||||1,1
W46|R5 part100%|5o|5,0,1,0|||||0
W47|R1 part50%|1o|1,0,1,0|||||0
W48|R10 part33.3%|10o|4,0,1,0|||||6,1
W49|R3 part7|3o|3,0,1,0|||||0
W50|R0 mu20%|3o|0,0,0,0||3/3|3||
W51|R5 OnDelete|3o|0,0,1,0|2/0/2||||3,-1
W52|R5 OnDelete|3o 1n 1o†|0,0,1,0|||1||4,1
W53|R3 OnDelete|2n 1n†|0,0,1,0|||1||
W54|R4 part2 updating|1oPU 2o|2,0,1,1|1/0/1||||0
W55|R4 part2|1oPU 2o|2,0,1,1|1/0/1||||1,0
W57|R5 mu4 part4 rollback|2o|4,0,4,0|3/2/3||||0
W58|R2 part1|3o 1o†|1,0,1,0||1/2|3||1,3
"""


def _rows() -> list[object]:
    rows = [line.split("|") for line in EXAMPLES.strip().splitlines()]
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


def _settings(text: str) -> tuple[Settings, dict[str, bool]]:
    replicas, rolling, scaling, on_delete = 0, {"max_unavailable": 1}, None, False
    flags = {"rollback": False, "same": False, "excludePD": False, "updating": False}
    for word in text.split():
        if word in flags:
            flags[word] = True
        elif word == "OnDelete":
            on_delete = True
        elif word == "paused":
            rolling["paused"] = True
        else:
            name, value = re.fullmatch(r"([A-Za-z]+)(.+)", word).groups()
            number = int(value) if value.isdigit() else value
            if name == "R":
                replicas = number
            elif name == "smu":
                scaling = number
            else:
                rolling[{"mu": "max_unavailable", "ms": "max_surge", "part": "partition"}[name]] = number
    block = None if on_delete else RollingUpdate(**rolling)
    return Settings(replicas=replicas, rolling_update=block, on_delete=on_delete, scale_max_unavailable=scaling), flags


def _counted_pods(text: str, *, preparing_update_is_new: bool) -> PodCounts:
    pod_counts = PodCounts()
    for number, revision, state in re.findall(r"([0-9]+)([on])([!~†PDU]*)", text):
        for _ in range(int(number)):
            pod_counts.count(
                new=revision == "n" or ("PU" in state and preparing_update_is_new),
                preparing_delete="PD" in state,
                marked="†" in state,
                available=not any(sign in state for sign in ("!", "~", "PU", "PD")),
            )
    return pod_counts


def _numbers(text: str, count: int) -> list[int]:
    given = [int(part) for part in re.findall("-?[0-9]+", text)]
    return given + [0] * (count - len(given))


@pytest.mark.behaviour("CS-93", "CS-94", "CS-95", "CS-183", "CS-133", "CS-185", "CS-123")
@pytest.mark.parametrize(
    ("asked", "pods", "base", "create", "delete", "delete_ready_limit", "surge", "update"), _rows()
)
def test_numbers_match_the_worked_examples(
    asked, pods, base, create, delete, delete_ready_limit, surge, update
) -> None:
    settings, flags = _settings(asked)
    found = limits(settings)
    pod_counts = _counted_pods(pods, preparing_update_is_new=flags["updating"])
    counts = [found.partition, found.surge, found.max_unavailable, pod_counts.unavailable]
    assert counts == _numbers(base, 4)
    assert diff(
        pod_counts,
        found,
        same_revision=flags["same"],
        rollback=flags["rollback"],
        exclude_preparing_delete=flags["excludePD"],
    ) == Diff(
        *_numbers(create, 3), *_numbers(delete, 2), *_numbers(delete_ready_limit, 1), *_numbers(surge, 2),
        *_numbers(update, 2),
    )  # fmt: skip


def test_percentages_may_have_decimals_everywhere() -> None:
    """OpenKruise reads 12.5% as 0 at run time (W56)."""
    settings = Settings(
        replicas=10,
        rolling_update=RollingUpdate(max_unavailable="12.5%", max_surge=".1%"),
        scale_max_unavailable="12.5%",
    )
    found = limits(settings)
    assert (found.surge, found.max_unavailable, found.scale_max_unavailable) == (1, 1, 2)
    assert limits(Settings(replicas=10, rolling_update=RollingUpdate(max_unavailable="12.5%"))).max_unavailable == 2


@pytest.mark.parametrize(("value", "replicas", "count"), [
    ("99%", 9, 8),
    ("1%", 10, 1),
    ("99%", 99, 98),
    ("100%", 99, 99),
    ("99%", 0, 0),
    ("1%", 1, 1),
    (None, 5, 0),
    (-3, 5, 0),
    (7, 5, 5),
    ("300%", 5, 5),
    ("100.0%", 5, 4),
    ("half", 5, 5),
])  # fmt: skip
def test_a_partition_counts_pods_that_stay(value: int | str | None, replicas: int, count: int) -> None:
    assert partition_count(value, replicas) == count
