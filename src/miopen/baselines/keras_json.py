"""Read a Keras net in frugally-deep's JSON, the form in which MIOpen ships its nets, and run it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError

Array = npt.NDArray[np.float32]
#: One layer: its inputs to its outputs (a layer with states has several).
Layer = Callable[[list[Array]], list[Array]]
#: An output of a layer: the layer's name and which output.
Port = tuple[str, int]

# binascii.Error of a broken base64 chunk is a ValueError.
_WRONG_CONTENT = (AttributeError, KeyError, IndexError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True)
class KerasNet:
    """A functional Keras net whose layers run in numpy, on batches, in float32 as MIOpen does.

    Parameters
    ----------
    layers : sequence of (str, Layer, tuple of Port)
        Name, function and inputs of each layer, every layer after those that it reads.
    inputs : tuple of str
        Names of the layers that hand in the inputs.
    outputs : tuple of Port
        What the net returns.
    recorded : sequence of (list of Array, list of Array)
        Inputs and outputs that the file's author recorded, each as a batch of one.

    Examples
    --------
    >>> relu = lambda values: [np.maximum(values[0], np.float32(0))]
    >>> net = KerasNet([("relu", relu, (("x", 0),))], ("x",), (("relu", 0),), [])
    >>> net(np.float32([[-1, 2]]))[0].tolist()
    [[0.0, 2.0]]
    """

    layers: Sequence[tuple[str, Layer, tuple[Port, ...]]]
    inputs: tuple[str, ...]
    outputs: tuple[Port, ...]
    recorded: Sequence[tuple[list[Array], list[Array]]]

    @classmethod
    def load(cls, path: Path) -> KerasNet:
        """Read a net from a file.

        Parameters
        ----------
        path : Path
            A ``.tn.model`` or ``.ktn.model`` file (not the metadata beside it).

        Raises
        ------
        InputError
            If the file isn't there, isn't such a net, or uses a layer that isn't known.
        """
        data = load_json(path)
        try:
            return _build(data)
        except _WRONG_CONTENT as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"not a net that can be run ({reason})", str(path)) from error

    def __call__(self, *inputs: Array) -> list[Array]:
        """Run the net.

        Parameters
        ----------
        *inputs : array
            One batch for each input, the first axis counting the cases.

        Returns
        -------
        list of array
            One batch for each output.
        """
        values: dict[Port, Array] = {
            (name, 0): array for name, array in zip(self.inputs, inputs, strict=True)
        }
        for name, layer, sources in self.layers:
            for index, array in enumerate(layer([values[source] for source in sources])):
                values[name, index] = array
        return [values[port] for port in self.outputs]

    def recorded_error(self) -> float | None:
        """Largest difference from the recorded outputs; None if the file records none."""
        if not self.recorded:
            return None
        return max(
            float(np.abs(got - want).max())
            for inputs, outputs in self.recorded
            for got, want in zip(self(*inputs), outputs, strict=True)
        )


def load_json(path: Path) -> Any:
    """Read a JSON file, or say in one line why it can't be read.

    Raises
    ------
    InputError
        If the file can't be read or isn't JSON.

    Examples
    --------
    >>> load_json(Path("no-such.tn.model"))
    Traceback (most recent call last):
        ...
    foretune.errors.InputError: no-such.tn.model: No such file or directory
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(error.strerror or str(error), str(path)) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"not JSON ({error})", str(path)) from error


def _build(data: Mapping[str, Any]) -> KerasNet:
    config = data["architecture"]["config"]
    params = {
        name: {key: _floats(value) for key, value in values.items() if isinstance(value, list)}
        for name, values in data["trainable_params"].items()
    }
    inputs = tuple(str(name) for name, _, _ in config["input_layers"])
    layers = []
    known: set[str] = set(inputs)
    for entry in config["layers"]:
        name, kind = entry["name"], entry["class_name"]
        if kind == "InputLayer":
            continue
        if kind not in _LAYERS:
            raise ValueError(f"unknown layer {kind!r}; known are {', '.join(_LAYERS)}")
        (node,) = entry["inbound_nodes"]
        sources = tuple((str(source), int(output)) for source, _, output, _ in node)
        if missing := {source for source, _ in sources} - known:
            raise ValueError(f"layer {name} reads {', '.join(missing)} before it is there")
        known.add(name)
        layers.append((name, _LAYERS[kind](entry["config"], params.get(name, {})), sources))
    return KerasNet(
        layers,
        inputs,
        tuple((str(name), int(output)) for name, _, output in config["output_layers"]),
        [
            ([_tensor(value) for value in test["inputs"]], [_tensor(v) for v in test["outputs"]])
            for test in data.get("tests", [])
        ],
    )


def _floats(chunks: Sequence[str]) -> Array:
    # Each chunk is base64 of its own, with its own padding: decode first, then join.
    decoded = [base64.b64decode(chunk, validate=True) for chunk in chunks]
    return np.frombuffer(b"".join(decoded), dtype="<f4")


def _tensor(value: Mapping[str, Any]) -> Array:
    return _floats(value["values"]).reshape(1, *value["shape"])


def _dense(config: Mapping[str, Any], params: Mapping[str, Array]) -> Layer:
    _expect(config, activation="linear")
    weights = params["weights"].reshape(-1, config["units"])
    bias = params["bias"] if config["use_bias"] else None

    def run(inputs: list[Array]) -> list[Array]:
        out = inputs[0] @ weights
        return [out if bias is None else out + bias]

    return run


def _add(_config: Mapping[str, Any], _params: Mapping[str, Array]) -> Layer:
    return lambda inputs: [np.sum(inputs, axis=0, dtype=np.float32)]


def _relu(config: Mapping[str, Any], _params: Mapping[str, Array]) -> Layer:
    _expect(config, max_value=None, negative_slope=0.0, threshold=0.0)
    return lambda inputs: [np.maximum(inputs[0], np.float32(0))]


def _embedding(config: Mapping[str, Any], params: Mapping[str, Array]) -> Layer:
    table = params["weights"].reshape(config["input_dim"], config["output_dim"])
    return lambda inputs: [table[inputs[0].astype(np.int64)]]


def _lstm(config: Mapping[str, Any], params: Mapping[str, Array]) -> Layer:
    _expect(
        config,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias=True,
        return_state=True,
        go_backwards=False,
        stateful=False,
    )
    units = config["units"]
    weights = params["weights"].reshape(-1, 4 * units)
    recurrent = params["recurrent_weights"].reshape(units, 4 * units)
    bias = params["bias"]
    sequences = config["return_sequences"]

    def run(inputs: list[Array]) -> list[Array]:
        driven = inputs[0] @ weights + bias
        zero = np.zeros((len(driven), units), np.float32)
        hidden, cell = inputs[1:] if len(inputs) > 1 else (zero, zero)
        steps = []
        for step in range(driven.shape[1]):
            gates = driven[:, step] + hidden @ recurrent
            # Keras's order of gates: input, forget, cell, output.
            let_in, forget, new, let_out = np.split(gates, 4, axis=1)
            cell = _sigmoid(forget) * cell + _sigmoid(let_in) * np.tanh(new)
            hidden = _sigmoid(let_out) * np.tanh(cell)
            steps.append(hidden)
        return [np.stack(steps, axis=1) if sequences else hidden, hidden, cell]

    return run


def _sigmoid(values: Array) -> Array:
    # Through tanh, because exp overflows where the features aren't normalised.
    half = np.float32(0.5)
    out: Array = half + half * np.tanh(half * values)
    return out


def _expect(config: Mapping[str, Any], **wanted: object) -> None:
    for name, value in wanted.items():
        if config[name] != value:
            raise ValueError(f"{config['name']}: {name} is {config[name]!r}, not {value!r}")


_LAYERS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Array]], Layer]] = {
    "Dense": _dense,
    "Add": _add,
    "ReLU": _relu,
    "Embedding": _embedding,
    "LSTM": _lstm,
}
