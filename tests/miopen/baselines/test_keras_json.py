from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.baselines.keras_json import KerasNet

DATABASES = Path(__file__).parents[4] / "shared" / "miopen-db"
NETS = sorted(
    path.relative_to(DATABASES).as_posix()
    for path in DATABASES.rglob("*.model")
    if "metadata" not in path.name
)
WITHOUT_RECORDING = "gfx908.tn.model"


@pytest.mark.skipif(not NETS, reason="AMD's nets (../shared/miopen-db) are not there")
def test_all_nets_are_found() -> None:
    assert len(NETS) == 18


@pytest.mark.parametrize("name", NETS)
def test_net_gives_what_its_file_recorded(name: str) -> None:
    error = KerasNet.load(DATABASES / name).recorded_error()
    if name == WITHOUT_RECORDING:
        assert error is None
    else:
        assert error is not None
        assert error < 1e-5


def test_recorded_error_sees_a_wrong_weight(tmp_path: Path) -> None:
    data = small_net()
    data["tests"] = [
        {
            "inputs": [{"shape": [1], "values": chunks([3.0])}],
            "outputs": [{"shape": [1], "values": chunks([3.0 * 2.0 + 0.5])}],
        }
    ]
    assert load(data, tmp_path).recorded_error() == 0.0
    data["trainable_params"]["dense"]["weights"] = chunks([2.25])
    assert load(data, tmp_path).recorded_error() == 0.75


def test_chunks_are_joined(tmp_path: Path) -> None:
    data = small_net(units=3)
    data["trainable_params"]["dense"] = {
        "weights": [*chunks([1.0]), *chunks([2.0, 3.0])],
        "bias": chunks([0.0, 0.0, -10.0]),
    }
    (out,) = load(data, tmp_path)(np.array([[2.0], [4.0]], np.float32))
    assert out.tolist() == [[2.0, 4.0, -4.0], [4.0, 8.0, 2.0]]


def test_lstm_follows_the_equations(tmp_path: Path) -> None:
    """One unit, two steps, against the textbook's formulas in plain Python."""
    weights, recurrent, bias = [0.5, -0.3, 0.8, 0.1], [0.2, 0.4, -0.6, 0.7], [0.1, 1.0, 0.0, -0.2]
    settings_ = {
        "name": "lstm",
        "units": 1,
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
        "use_bias": True,
        "return_sequences": False,
        "return_state": True,
        "go_backwards": False,
        "stateful": False,
    }
    data = net_of("LSTM", settings_, outputs=3)
    data["trainable_params"]["lstm"] = {
        "weights": chunks(weights),
        "recurrent_weights": chunks(recurrent),
        "bias": chunks(bias),
    }
    steps = [1.5, -2.0]
    out, hidden, cell = load(data, tmp_path)(np.array([[[x] for x in steps]], np.float32))

    h = c = 0.0
    for x in steps:
        i, f, g, o = (x * w + h * r + b for w, r, b in zip(weights, recurrent, bias, strict=True))
        c = sigmoid(f) * c + sigmoid(i) * math.tanh(g)
        h = sigmoid(o) * math.tanh(c)
    assert out[0, 0] == pytest.approx(h, abs=1e-6)
    assert hidden[0, 0] == pytest.approx(h, abs=1e-6)
    assert cell[0, 0] == pytest.approx(c, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data.pop("architecture"), "architecture"),
        (lambda data: data["trainable_params"]["dense"].pop("weights"), "weights"),
        (lambda data: data["trainable_params"]["dense"].update(weights=["?"]), "Error"),
        (lambda data: layer(data).update(class_name="Conv2D"), "unknown layer 'Conv2D'"),
        (lambda data: layer(data)["config"].update(activation="gelu"), "activation is 'gelu'"),
        (lambda data: layer(data).update(inbound_nodes=[[["y", 0, 0, {}]]]), "reads y before"),
    ],
)
def test_a_net_that_cannot_run_is_refused(change: Any, reason: str, tmp_path: Path) -> None:
    data = small_net()
    change(data)
    with pytest.raises(InputError, match=reason):
        load(data, tmp_path)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.model: No such file"):
        KerasNet.load(tmp_path / "gone.model")
    with pytest.raises(InputError, match="directory"):
        KerasNet.load(tmp_path)
    broken = tmp_path / "broken.model"
    broken.write_bytes(b'{"architecture": \xff')
    with pytest.raises(InputError, match="not JSON"):
        KerasNet.load(broken)


values = st.recursive(
    st.none() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(
    place=st.sampled_from(["architecture", "trainable_params", "tests", "config", "node"]),
    value=values,
)
def test_any_content_loads_or_is_refused(
    place: str, value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = small_net()
    if place == "config":
        layer(data)["config"] = value
    elif place == "node":
        layer(data)["inbound_nodes"] = value
    else:
        data[place] = value
    try:
        net = load(data, tmp_path_factory.getbasetemp())
    except InputError:
        return
    assert net.outputs == (("dense", 0),)


def load(data: dict[str, Any], folder: Path) -> KerasNet:
    path = folder / "net.model"
    path.write_text(json.dumps(data))
    return KerasNet.load(path)


def layer(data: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = data["architecture"]["config"]["layers"][1]
    return entry


def small_net(units: int = 1) -> dict[str, Any]:
    config = {"name": "dense", "units": units, "activation": "linear", "use_bias": True}
    data = net_of("Dense", config, outputs=1)
    data["trainable_params"]["dense"] = {"weights": chunks([2.0]), "bias": chunks([0.5])}
    return data


def net_of(kind: str, config: dict[str, Any], outputs: int) -> dict[str, Any]:
    name = config["name"]
    layers = [
        {"class_name": "InputLayer", "name": "x", "config": {}, "inbound_nodes": []},
        {
            "class_name": kind,
            "name": name,
            "config": config,
            "inbound_nodes": [[["x", 0, 0, {}]]],
        },
    ]
    return {
        "architecture": {
            "config": {
                "layers": layers,
                "input_layers": [["x", 0, 0]],
                "output_layers": [[name, 0, index] for index in range(outputs)],
            }
        },
        "trainable_params": {},
    }


def chunks(numbers: list[float]) -> list[str]:
    return [base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
