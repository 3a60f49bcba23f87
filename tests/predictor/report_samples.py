"""Reports of made-up picks."""

from __future__ import annotations

import numpy as np

from foretune.predictor.report import (
    Layer,
    Network,
    Picks,
    ReportData,
    SearchTime,
    WorstPick,
)

#: What breaks pages, style sheets, scripts, formulas and files where it isn't escaped.
HOSTILE = (
    "<script>document.title='owned'</script>",
    "</svg></figure><img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    r"$\frac{1}{$ %s \begin{x} _^",
    "a\x00b\x1b[31m\udcff\ufffe\u202e\u2028 ]]> --> &amp; &#0;",
)


def sample_report(
    problems: int = 60,
    seed: int = 0,
    name: str = "net",
    texts: tuple[str, ...] = (),
    default: bool = True,
) -> ReportData:
    """Picks of a good picker and a bad one; `texts` and `name` go wherever text can."""
    random = np.random.default_rng(seed)
    text = [*texts, *["text"] * 4]
    best = random.uniform(0.01, 5, problems)
    slow = np.where(random.random(problems) < 0.7, 1.0, 1 + random.exponential(0.4, problems))
    slow[random.random(problems) < 0.05] = np.inf
    score = np.clip(1.1 - 0.2 * np.where(np.isfinite(slow), slow, 3.0), 0.01, 0.99)
    good = Picks(f"model {name}", best * slow, np.ones(problems, bool))
    other = Picks(
        f"other {text[0]}",
        best * (1 + random.exponential(1.0, problems)),
        random.random(problems) < 0.9,
    )
    answered = {good.name, other.name}
    layers = [
        Layer(
            f"layer {i} {text[1]}",
            1 + i % 3,
            float(best[i]),
            {picker: float(best[i] * (1 + i % 4 / 3)) for picker in sorted(answered)[: 1 + i % 2]}
            | {good.name: float(best[i])},
            frozenset([other.name]),
            50.0,
            i % 2 == 0,
            i % 3 == 0,
        )
        for i in range(min(problems, 9))
    ]
    stratum = np.array(["F", name])[random.integers(0, 2, problems)]
    return ReportData(
        title=f"Kernels of {name}",
        subtitle=text[1],
        facts={f"fact {text[2]}": text[3]},
        seen=f"Nothing of {name} was learnt.",
        not_measured="not listed",
        best=best,
        pickers=[good, other],
        default=other.name if default else "",
        first_choices=best * np.minimum(np.where(np.isfinite(slow), slow, 1.4), 1.05),
        choices=3,
        score=score,
        sure=random.random(problems) < 0.95,
        stratum=stratum,
        shape=random.integers(0, max(problems // 3, 1), problems).astype(float),
        unseen=np.ones(problems, bool),
        groups={"all": np.ones(problems, bool), f"group {name}": stratum == "F"},
        accepted={risk: score > 1 - 2 * risk for risk in (0.02, 0.05, 0.1)},
        risk=0.05,
        search=SearchTime(7200.0, 30.0, f"Eight runs of {text[0]}."),
        networks=[
            Network(name, "FP32", 12, layers),
            Network(name, text[2], 9, layers[:3]),
            Network("another", "FP16", 3, layers[:1]),
        ],
        networks_note=text[3],
        worst=[
            WorstPick(
                f"problem {name}",
                {f"feature {text[1]}": text[2]},
                f"pick {text[3]}",
                f"best {name}",
                3.0,
                True,
                1.0,
                0.9,
                None,
                0.8,
                True,
                True,
                f"because {text[0]}",
            )
        ],
    )
