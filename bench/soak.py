"""Run a soak test for twenty minutes: ``python -m bench.soak [--minutes 20] [--rate 2000] [--pods 10]``.

A replica serves reviews at a constant rate while Pods are created and deleted on a real API server, which keeps caches
and watches busy. Each minute, latency, failures, memory of each process (PSS) and CPU are appended to
``bench/soak.csv``. At the end, they are plotted to ``bench/soak.svg``.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path

from bench.admission import review
from bench.processes import apply_sets, cluster
from bench.rate import Interval, generator
from bench.replica import MeasuredReplica, replica
from tests.chaos.load import Outcome, pod_creations

HERE = Path(__file__).resolve().parent
FIELDS = ("minute", "reviews_per_s", "p50_ms", "p99_ms", "p999_ms", "longest_ms", "failures", "generator_late_p99_ms",
          "pods_created", "pods_failed", "pss_mib", "supervisor_mib", "webhook_0_mib", "webhook_1_mib",
          "reconciler_mib", "cpu_cores", "load_average")  # fmt: skip


def measured(minute: int, seen: Interval, pods: tuple[int, int], one: MeasuredReplica, cpu: float) -> dict[str, object]:
    """Return the line for the last minute."""
    memory = one.memory()
    return {
        "minute": minute,
        "reviews_per_s": seen.per_second,
        "p50_ms": seen.p50,
        "p99_ms": seen.p99,
        "p999_ms": seen.p999,
        "longest_ms": seen.longest,
        "failures": seen.failures,
        "generator_late_p99_ms": seen.late_p99,
        "pods_created": pods[0],
        "pods_failed": pods[1],
        "pss_mib": round(sum(memory.values()), 1),
        "supervisor_mib": round(memory["supervisor"], 1),
        "webhook_0_mib": round(memory.get("webhook-0", 0.0), 1),
        "webhook_1_mib": round(memory.get("webhook-1", 0.0), 1),
        "reconciler_mib": round(memory.get("reconciler", 0.0), 1),
        "cpu_cores": round(cpu, 2),
        "load_average": float(Path("/proc/loadavg").read_text().split()[0]),
    }


def soak(minutes: int, seconds: float, rate: int, pod_rate: int, out: Path) -> list[dict[str, object]]:
    """Run the soak test. Returns the lines, and also appends each to ``out`` as soon as it is known."""
    lines: list[dict[str, object]] = []
    with (
        cluster() as (control_plane, folder),
        replica(control_plane, control_plane.server, folder) as one,
        out.open("w", newline="") as file,
    ):
        apply_sets(control_plane)
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        with (
            generator(
                one.url, review(), rate=rate, seconds=minutes * seconds, every=seconds, warm_up=5.0
            ) as generating,
            pod_creations(control_plane, pod_rate) as creations,
        ):
            assert generating.stdout is not None
            before, counted = sum(one.cpu().values()), (0, 0)
            for minute, text in enumerate(generating.stdout, 1):
                cpu = sum(one.cpu().values())
                good = creations.count(Outcome.INJECTED)
                bad = len(creations.attempts) - good
                pods = (good - counted[0], bad - counted[1])
                line = measured(minute, Interval(**json.loads(text)), pods, one, (cpu - before) / seconds)
                before, counted = cpu, (good, bad)
                lines.append(line)
                writer.writerow(line)
                file.flush()
                print(", ".join(f"{name} {value}" for name, value in line.items()), flush=True)
    return lines


# ---- the plot

_WIDTH, _PANEL, _LEFT, _TOP = 720, 150, 60, 34


def plot(lines: Sequence[dict[str, object]]) -> str:
    """Return an SVG that plots memory, latency and rate over time in three panels."""
    panels = (
        (
            "memory of all processes, PSS in MiB",
            (("pss_mib", "all"), ("reconciler_mib", "reconciler"), ("webhook_0_mib", "webhook-0")),
        ),
        ("latency in ms", (("p99_ms", "p99"), ("p50_ms", "p50"))),
        ("reviews per second", (("reviews_per_s", "answered"),)),
    )
    height = len(panels) * (_PANEL + _TOP + 16) + 10
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12"',
        f' viewBox="0 0 {_WIDTH} {height}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, (title, series) in enumerate(panels):
        parts += _panel(title, series, lines, number * (_PANEL + _TOP + 16) + _TOP)
    return "\n".join([*parts, "</svg>", ""])


_COLOURS = ("#1f5fa8", "#c4561b", "#3b8a3f")


def _panel(title: str, series: Sequence[tuple[str, str]], lines: Sequence[dict[str, object]], top: int) -> list[str]:
    right, bottom = _WIDTH - 110, top + _PANEL
    highest = max((float(str(line[name])) for line in lines for name, _ in series), default=1.0) * 1.1 or 1.0
    parts = [f'<text x="{_LEFT}" y="{top - 10}" font-weight="bold">{title}</text>']
    for step in range(5):
        y = bottom - _PANEL * step / 4
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{highest * step / 4:.4g}</text>')
    last = max(len(lines) - 1, 1)
    for index, line in enumerate(lines):
        if index % max(1, len(lines) // 10) == 0:
            x = _LEFT + (right - _LEFT) * index / last
            parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{line["minute"]}</text>')
    for (name, label), colour in zip(series, _COLOURS, strict=False):
        points = [
            (_LEFT + (right - _LEFT) * index / last, bottom - _PANEL * float(str(line[name])) / highest)
            for index, line in enumerate(lines)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if points:
            parts.append(f'<text x="{right + 6}" y="{points[-1][1] + 4:.1f}" fill="{colour}">{label}</text>')
    return parts


def command() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=20, help="number of lines")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds per line")
    parser.add_argument("--rate", type=int, default=2000, help="reviews per second")
    parser.add_argument("--pods", type=int, default=10, help="Pods created and deleted per second")
    parser.add_argument("--out", type=Path, default=HERE / "soak.csv")
    options = parser.parse_args()
    lines = soak(options.minutes, options.seconds, options.rate, options.pods, options.out)
    options.out.with_suffix(".svg").write_text(plot(lines))


if __name__ == "__main__":
    command()
