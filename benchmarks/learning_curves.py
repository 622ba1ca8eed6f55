"""Whether every stage of a run learned anything about heads it has not seen: its loss on them, from start to end.

    python benchmarks/learning_curves.py RUN [RUN ...] [--out CURVES.md]

The heads, diffusion steps and noise are the same each time (`start` and `validation` in RUN/log.jsonl).
"""

import argparse
from pathlib import Path

from tensorldm.training.runlog import read_log

SHOWN = 6
"""Points of a stage, its first and last among them."""


def curve(records: list[dict], stage: int) -> list[tuple[int, float]]:
    """(step, loss) of a stage; of a stage that was begun again, the last time."""
    found: dict[int, float] = {}
    for record in records:
        if record["stage"] != stage or record["event"] not in ("start", "validation"):
            continue
        if record["event"] == "start":
            found = {}
        if record.get("loss") is not None:
            found[record["step"]] = record["loss"]
    return sorted(found.items())


def thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    last = len(points) - 1
    chosen = {round(index * last / (SHOWN - 1)) for index in range(SHOWN)} if last else {0}
    return [points[index] for index in sorted(chosen)]


def rows(run: Path) -> list[str]:
    records = read_log(run)
    lines = []
    for stage in sorted({record["stage"] for record in records}):
        points = curve(records, stage)
        if len(points) < 2:
            lines.append(f"| {run.name} | {stage} | no validation in the log | |")
            continue
        told = " → ".join(f"{loss:.4g} ({step})" for step, loss in thinned(points))
        lines.append(f"| {run.name} | {stage} | {told} | {100 * (points[-1][1] / points[0][1] - 1):+.1f} % |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    table = ["| Run | Stage | Loss on held-out heads (after steps) | Change |", "|---|---|---|---|"]
    for run in wanted.runs:
        table += rows(run)
    print("\n".join(table))
    if wanted.out:
        wanted.out.write_text("\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
