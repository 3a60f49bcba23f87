"""What is captured of a model is what PyTorch runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.driver import format_driver_line, parse_driver_line
from foretune.torch import capture, trace

from ..networks import diffusion_unet, efficientnet, resnet50, vocoder
from .oracle import convolutions, layouts


def train(model: Callable[..., Any], *runs: tuple[Tensor, ...]) -> Counter[ConvProblem]:
    """Really run a model and its gradients."""

    def run() -> None:
        for arguments in runs:
            model(*arguments).sum().backward()

    return convolutions(run)


def latents(height: int, width: int, batch: int = 1) -> tuple[Tensor, ...]:
    return torch.rand(batch, 4, height, width), torch.rand(batch), torch.rand(batch, 7, 48)


NETWORKS: list[tuple[Callable[[], nn.Module], list[tuple[Tensor, ...]], int]] = [
    (resnet50.build, [(torch.rand(2, 3, 64, 64),), (torch.rand(1, 3, 40, 48),)], 53),
    (efficientnet.build, [(torch.rand(2, 3, 64, 64),)], 81),
    (
        diffusion_unet.build,
        [latents(*size) for size in ((32, 32), (40, 24), (24, 40), (48, 48), (16, 16))],
        29,
    ),
    (vocoder.build, [(torch.rand(2, 80, 6),), (torch.rand(1, 80, 9),)], 54),
]


@pytest.mark.parametrize(("build", "runs", "layers"), NETWORKS)
def test_networks_are_captured_whole(
    build: Callable[[], nn.Module], runs: list[tuple[Tensor, ...]], layers: int
) -> None:
    model = build()
    captured = capture(model, *runs)
    assert captured == train(model, *runs)
    forward = capture(model, *runs, backward=False)
    assert sum(forward.values()) == layers * len(runs)
    with torch.no_grad():
        assert forward == convolutions(lambda: [model(*arguments) for arguments in runs])
    for problem in captured:
        assert parse_driver_line(format_driver_line(problem)) == [problem]


@pytest.mark.parametrize(("build", "runs", "layers"), NETWORKS[:3])
def test_networks_are_captured_in_channels_last(
    build: Callable[[], nn.Module],
    runs: list[tuple[Tensor, ...]],
    layers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build()
    usual = capture(model, *runs)
    assert capture(model, *runs, channels_last=True) == usual
    monkeypatch.setenv("PYTORCH_MIOPEN_SUGGEST_NHWC", "1")
    assert capture(model, *runs) == usual

    captured = capture(model, runs[0], backward=False, channels_last=True)
    found: Counter[tuple[tuple[int, ...], tuple[int, ...], str]] = Counter()
    for problem, count in captured.items():
        x = (problem.batch, problem.in_channels, *problem.in_size)
        y = (problem.batch, problem.out_channels, *problem.out_size)
        assert problem.layout == problem.weight_layout == problem.out_layout
        found[x, y, problem.layout] += count
    # Other operations may give another layout on a GPU; as the filters are channels-last,
    # every convolution is.
    real = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    first, *others = runs[0]
    assert found == layouts(real, [first.to(memory_format=torch.channels_last), *others])
    assert sum(found.values()) == layers
    assert any(layout == "NHWC" for *_, layout in found)


@st.composite
def layers(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    ndim = draw(st.integers(1, 3))
    groups = draw(st.sampled_from((1, 1, 2, 4)))
    transposed = draw(st.booleans())
    kinds: tuple[Any, ...] = (
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
        if transposed
        else (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    )

    def sizes(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(ndim))

    step = sizes(1, 3)
    options: dict[str, Any] = {"stride": step, "padding": sizes(0, 1), "dilation": sizes(1, 2)}
    if transposed:
        options["output_padding"] = tuple(draw(st.integers(0, n - 1)) for n in step)
    layer = kinds[ndim - 1](
        groups * draw(st.integers(1, 3)),
        groups * draw(st.integers(1, 3)),
        sizes(1, 3),
        groups=groups,
        bias=draw(st.booleans()),
        **options,
    )
    return layer, (draw(st.integers(1, 3)), layer.in_channels, *sizes(5, 9))


@settings(max_examples=60, deadline=None)
@given(layers(), st.booleans(), st.booleans())
def test_any_layer_is_captured(
    layer_and_shape: tuple[nn.Module, tuple[int, ...]], input_learns: bool, weight_learns: bool
) -> None:
    layer, shape = layer_and_shape
    layer.weight.requires_grad_(weight_learns)
    x = torch.rand(shape, requires_grad=input_learns)
    if input_learns or any(parameter.requires_grad for parameter in layer.parameters()):
        assert capture(layer, x) == train(layer, (x,))
    else:
        with pytest.raises(ValueError, match="no output of the model needs a gradient"):
            capture(layer, x)
    assert capture(layer, x, backward=False) == convolutions(lambda: layer(x))


class Odd(nn.Module):
    """Uses its filter twice, frozen once, and pads it unevenly."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(4, 4, 2, padding="same")
        self.plain = torch.ones(4, 4, 3, 3)
        self.calls = 0
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen = x
        with torch.no_grad():
            x = self.shared(x)
        y = checkpoint(lambda x: self.shared(x).relu(), x, use_reentrant=False)
        z: Tensor = self.shared(x)[:, :, :1]
        return z + nn.functional.conv2d(y, self.plain, padding=1)


def test_what_is_no_module_is_captured_too() -> None:
    model, x = Odd(), torch.rand(2, 4, 7, 8)
    assert capture(model, x) == train(model, (x,))
    assert capture(nn.functional.conv2d, (x, torch.rand(2, 4, 1, 1)), backward=False) == {
        ConvProblem("F", 2, 4, (7, 8), 2, (1, 1)): 1
    }


def test_an_image_without_a_batch_is_a_batch_of_one() -> None:
    layer = nn.Conv2d(3, 5, 3)
    assert capture(layer, (3, 9, 9)) == train(layer, (torch.rand(3, 9, 9),))


def test_the_model_stays_as_it_is() -> None:
    model = Odd().train()
    before = {name: (value.clone(), value.stride()) for name, value in model.state_dict().items()}
    capture(model, (2, 4, 7, 8), channels_last=True, dtype=torch.float16)
    assert model.calls == 0
    assert model.seen is None
    assert model.training
    assert type(model.plain) is Tensor
    for name, value in model.state_dict().items():
        assert type(value) is Tensor
        assert value.stride() == before[name][1]
        assert torch.equal(value, before[name][0])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_values_are_never_computed() -> None:
    with torch.device("meta"):
        # 400 GB of weights, and more of activations.
        model = nn.Sequential(nn.Conv2d(3, 100_000, 1), nn.Conv2d(100_000, 1_000_000, 1))
    captured = capture(model, (64, 3, 4096, 4096))
    assert sum(captured.values()) == 5


def test_inputs_take_all_forms() -> None:
    layer = nn.Conv2d(3, 5, 3)
    (one,) = capture(layer, (1, 3, 9, 9), backward=False)
    for given_input in (
        torch.rand(1, 3, 9, 9),
        torch.rand(1, 3, 9, 9, device="meta"),
        (torch.rand(1, 3, 9, 9),),
        ((1, 3, 9, 9),),
        {"input": (1, 3, 9, 9)},
    ):
        assert list(capture(layer, given_input, backward=False)) == [one]
    several = capture(layer, (1, 3, 9, 9), (4, 3, 9, 9), (1, 3, 9, 9), backward=False)
    assert [(problem.batch, count) for problem, count in several.items()] == [(1, 2), (4, 1)]


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float16, "FP16"), (torch.bfloat16, "BF16"), (torch.float32, "FP32")]
)
def test_types(dtype: torch.dtype, name: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ConvTranspose2d(5, 3, 2))
    x = torch.rand(2, 3, 9, 9)
    assert {problem.dtype for problem in capture(model, x, dtype=dtype)} == {name}
    if dtype == torch.float32:
        return
    for options in ({"dtype": dtype}, {"autocast": dtype}):
        captured = capture(model, x, **options)  # type: ignore[arg-type]
        assert {problem.dtype for problem in captured} == {name}
        usual = capture(model, x)
        assert [(problem.direction, problem.shape_key) for problem in captured] == [
            (problem.direction, problem.shape_key) for problem in usual
        ]


def test_old_weight_norm_can_be_converted() -> None:
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Conv1d(4, 4, 3))
    captured = capture(layer, (2, 4, 9), dtype=torch.bfloat16)
    assert {problem.dtype for problem in captured} == {"BF16"}
    assert [problem.direction for problem in captured] == ["F", "W"]


def test_depthwise_goes_to_miopen_unless_it_is_dilated() -> None:
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 3, groups=8, dilation=2, bias=False)
    )
    traced = trace(model, [(1, 8, 20, 20)], backward=True)
    assert [problem.direction for problem in traced.counts] == ["F", "W"]
    assert all(problem.groups == 8 for problem in traced.counts)
    assert traced.native == {"groups with dilation": 3}


@pytest.mark.parametrize(
    ("layer", "shape", "reason"),
    [
        (nn.Conv2d(3, 5, 3).double(), (1, 3, 9, 9), "float64"),
        (nn.Conv2d(3, 5, 3), (0, 3, 9, 9), "empty tensors"),
        (
            nn.ConvTranspose2d(3, 5, 3, dilation=2, output_padding=1),
            (1, 3, 9, 9),
            "output padding of a whole stride",
        ),
    ],
)
def test_what_miopen_isnt_asked_for(layer: nn.Module, shape: tuple[int, ...], reason: str) -> None:
    traced = trace(layer, [shape])
    assert not traced.counts
    assert traced.native == {reason: 1}


def test_without_cudnn_there_is_no_miopen() -> None:
    with torch.backends.cudnn.flags(enabled=False):
        assert trace(nn.Conv2d(3, 5, 3), [(1, 3, 9, 9)]).native == {
            "torch.backends.cudnn.enabled is off": 1
        }
