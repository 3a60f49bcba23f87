"""The page that a bundle carries for people."""

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
    ("above_2x", ">2x", "{:.2%}"),
    ("not_listed", "not listed", "{:.1%}"),
    ("p1_efficiency", "P1 efficiency", "{:.3f}"),
    ("top3_slowdown", "top-3 measured", "{:.4f}"),
)


def write_model_card(folder: str | os.PathLike[str]) -> None:
    """Write MODEL_CARD.md from the bundle's manifest and metrics."""
    home = Path(folder)
    manifest = json.loads((home / "manifest.json").read_text(encoding="utf-8"))
    metrics = json.loads((home / "metrics.json").read_text(encoding="utf-8"))
    lines = [
        f"# MIOpen solver choice on {manifest['arch']}",
        "",
        "Ranks MIOpen's convolution solvers, predicts the time of the first few, says whether the "
        "pick may be used without measuring, and ranks the tuning-parameter configs of tunable "
        "solvers. Boosted trees (LightGBM), answered by foretune without it.",
        "",
        f"Learnt from AMD's databases: {', '.join(manifest['databases'])}. They are measured "
        "winners, at most four solvers a problem; a solver not listed is slower or not applicable.",
        "",
        "Not for: other archs, types or layouts than those of the databases; such answers are "
        "never accepted. Compute-unit counts without a database are answered, not accepted.",
        "",
        f"Rebuild: `{manifest['rebuild']}` (same machine and versions: the same files).",
        "",
        "## On shapes that training never saw",
        "",
        "Slowdown is the geometric mean of pick over best listed, of listed picks.",
    ]
    for name, result in metrics["solver_ranking"].items():
        lines += ["", f"### {name}", "", *_table(result["unseen (calibrate and test parts)"])]
        lines += ["", *_accepting(result["accepting (test part)"].get("all", []))]
    lines += _configs(metrics["configs"])
    (home / "MODEL_CARD.md").write_text("\n".join(lines), encoding="utf-8")


def _configs(metrics: dict[str, Any]) -> list[str]:
    if not metrics:
        return ["", "No perf-db, so no configs are ranked.", ""]
    lines = [
        "",
        "## Configs",
        "",
        f"Learnt from {metrics['perf_db']} ({metrics['compute_units']} CU). Exact hits of the "
        "tuned config, and parameters that agree, beside the usual config and AMD's kernel-tuning "
        "net on the same problems.",
        "",
        "| solver | type | problems | configs | top-1 | top-5 | top-10 | parameters "
        "| usual top-1 | net top-1 | net parameters |",
        "|---" * 11 + "|",
    ]
    for score in metrics["scores"]:
        shares = [score[name] for name in ("top_1", "top_5", "top_10", "parameters", "usual_top_1")]
        shares += [score["net_top_1"], score["net_parameters"]]
        cells = ["" if share is None else f"{share:.1%}" for share in shares]
        lines.append(
            f"| {score['solver']} {score['direction']} | {score['dtype']} | {score['problems']} | "
            f"{score['configs']} | {' | '.join(cells)} |"
        )
    return [*lines, ""]


def _table(groups: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| shapes | " + " | ".join(title for _, title, _ in _COLUMNS) + " |",
        "|---" * (len(_COLUMNS) + 1) + "|",
    ]
    for group, score in groups.items():
        if score["problems"]:
            cells = [form.format(score[name]) for name, _, form in _COLUMNS]
            lines.append(f"| {group} | " + " | ".join(cells) + " |")
    return lines


def _accepting(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| stated risk | coverage | achieved, by shape | achieved, by record | measured | "
        "slowdown delivered |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['stated_risk']:.0%} | {row['coverage']:.1%} | "
            f"{row['risk_by_shape']:.1%} | {row['risk']:.1%} | "
            f"{row['measured']:.1%} | {row['slowdown']:.4f} |"
        )
    return lines
