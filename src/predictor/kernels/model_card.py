"""The page that a candidate model carries for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

_COLUMNS = (
    ("problems", "problems", "{:,}"),
    ("top1", "top-1", "{:.1%}"),
    ("slowdown", "slowdown", "{:.4f}"),
    ("above_1_1x", ">1.1x", "{:.1%}"),
    ("above_2x", ">2x", "{:.1%}"),
    ("top3_slowdown", "top-3 measured", "{:.4f}"),
    ("top4_slowdown", "top-4 measured", "{:.4f}"),
    ("ranked_slowdown", "all ranked measured", "{:.4f}"),
    ("replayed_slowdown", "choice of all measured", "{:.4f}"),
    ("replayed_top4", "top-4 of all measured", "{:.4f}"),
)


def write_candidate_card(folder: str | os.PathLike[str]) -> None:
    """Write MODEL_CARD.md from the bundle's manifest and metrics."""
    home = Path(folder)
    manifest = json.loads((home / "manifest.json").read_text(encoding="utf-8"))
    metrics = json.loads((home / "metrics.json").read_text(encoding="utf-8"))
    calibration = json.loads((home / "calibration.json").read_text(encoding="utf-8"))
    unmeasured = calibration["unmeasured"]
    devices = ", ".join(
        f"{device['name']} ({device['compute_units']} compute units)"
        for device in manifest["devices"]
    )
    lines = [
        f"# foretune's {manifest['operation']} kernels on {manifest['arch']}",
        "",
        "Ranks candidates (solver and config) of foretune's own kernels for a problem, predicts "
        "their times, and says whether the first may be used without measuring. Boosted trees "
        "(LightGBM), answered by foretune without it.",
        "",
        f"Learnt from {manifest['trials']:,} trials of {manifest['problems']} problems "
        f"({manifest['shapes']} shapes) on {devices}: {', '.join(manifest['datasets']) or 'none'}.",
        "",
        "Not for: other devices, kinds of problems (direction, type, layout, groups) of which few "
        "were learnt, and sizes beyond those learnt. Such answers are never accepted.",
        "",
        f"Rebuild: `{manifest['rebuild']}` (same machine and versions: the same files).",
        "",
        "## On shapes that training never saw",
        "",
        f"{metrics['how'][0].upper()}{metrics['how'][1:]}. "
        f"The first choice was measured for {metrics['first_was_measured']:.0%} of the problems.",
        "",
        *_table(metrics["scores"]),
        "",
        '"All ranked measured" is the best that the ranked candidates hold; "choice of all '
        'measured" is the slowdown of the first when every candidate that was measured for the '
        "problem is ranked, whether or not an answer would have listed it.",
        "",
        *_accepting(metrics["accepting"]),
        "",
        f"Where default candidates were measured too ({unmeasured['problems']} problems), picks "
        f"take {unmeasured['pick']:.4f} times as long as the best, and defaults "
        f"{unmeasured['default']:.4f}: where nothing may be measured, "
        + ("picks" if unmeasured["pick"] <= unmeasured["default"] else "defaults")
        + " are used.",
        "",
    ]
    (home / "MODEL_CARD.md").write_text("\n".join(lines), encoding="utf-8")


def _table(groups: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| problems | " + " | ".join(title for _, title, _ in _COLUMNS) + " |",
        "|---" * (len(_COLUMNS) + 1) + "|",
    ]
    for group, score in groups.items():
        cells = [form.format(score[name]) for name, _, form in _COLUMNS]
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    return lines


def _accepting(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| stated risk | coverage | achieved, by shape | achieved, by record | "
        "slowdown delivered |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['stated_risk']:.0%} | {row['coverage']:.1%} | {row['risk_by_shape']:.1%} | "
            f"{row['risk']:.1%} | {row['slowdown']:.4f} |"
        )
    return lines
