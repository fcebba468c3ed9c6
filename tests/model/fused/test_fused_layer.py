"""The fused layer against transformers' layer with PEFT's adapters, and its parts against autograd.

Tolerance 1e-5 relative in float32: the same sums in another order.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import make_cache, relative_error
from peft import LoraConfig, get_peft_model

from swift_plugin.model.fused.dropout import drop, keep_mask
from swift_plugin.model.fused.layer import why_not_fused
from swift_plugin.model.fused.lora import gather_group, lora_linear
from swift_plugin.model.fused.swiglu import swiglu_lora
from swift_plugin.model.head import TurnHeadConfig
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.collator import OpenStreamCollator

TOLERANCE = 1e-5
ALL = r"model\.layers\.\d+\..*_proj"


@pytest.fixture(scope="module")
def batch(tiny_checkpoint, tmp_path_factory):
    path = make_cache(tmp_path_factory.mktemp("cache") / "s", tiny_checkpoint, spans=[(0, 11)], memory_seconds=4)
    rows = [
        {"manifest": str(path), "block_index": block, "tails": tails, "targets": torch.zeros(len(tails), 11, 3).tolist()}
        for block, tails in ((0, [1, 2, 3]), (3, [2, 9, 10]), (4, list(range(1, 11))))
    ]
    batch = OpenStreamCollator()(rows)
    return {name: value for name, value in batch.items() if name not in ("labels", "present")}


def adapted_model(checkpoint, *, target: str = ALL, dropout: float = 0.0, **lora) -> torch.nn.Module:
    """Adapters whose B is not zero, so that both matrices count."""
    torch.manual_seed(0)
    model = TurnPredictor.load(checkpoint, dtype=torch.float32)
    model.attach_head(TurnHeadConfig(hidden_size=model.config.hidden_size, dropout=0.0, num_input_layers=2))
    tuned = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules=target, **lora))
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    return tuned.train()


def loss_and_gradients(model, batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    logits = model(**batch).logits
    (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    return logits, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("target", [ALL, r".*\.(q_proj|v_proj)", r".*\.down_proj", r"model\.layers\.[23]\..*_proj"])
def test_logits_and_gradients_equal_those_of_peft(tiny_checkpoint, batch, target):
    native = adapted_model(tiny_checkpoint, target=target)
    fused = copy.deepcopy(native)
    assert fused.get_base_model().fuse_layers(compile=False) is None
    logits, gradients = loss_and_gradients(fused, batch)
    expected, expected_gradients = loss_and_gradients(native, batch)
    assert relative_error(logits, expected) < TOLERANCE
    assert gradients.keys() == expected_gradients.keys() and gradients
    for name, gradient in gradients.items():
        assert relative_error(gradient, expected_gradients[name]) < TOLERANCE, name


def test_gradient_checkpointing_draws_the_same_masks_again(tiny_checkpoint, batch):
    plain = adapted_model(tiny_checkpoint, dropout=0.3)
    again = copy.deepcopy(plain)
    again.get_base_model().model.gradient_checkpointing = True
    for model in (plain, again):
        assert model.get_base_model().fuse_layers(compile=False) is None
    torch.manual_seed(3)
    _, expected = loss_and_gradients(plain, batch)
    torch.manual_seed(3)
    _, gradients = loss_and_gradients(again, batch)
    for name, gradient in gradients.items():
        assert relative_error(gradient, expected[name]) < TOLERANCE, name


def test_dropout_is_on_in_training_and_off_in_evaluation(tiny_checkpoint, batch):
    model = adapted_model(tiny_checkpoint, dropout=0.3)
    model.get_base_model().fuse_layers(compile=False)
    with torch.no_grad():
        assert not torch.equal(model(**batch).logits, model(**batch).logits)
        model.eval()
        assert torch.equal(model(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize(
    ("lora", "reason"), [({"use_dora": True}, "DoRA"), ({"lora_bias": True}, "LoRA bias")]
)
def test_what_the_fused_layer_does_not_cover_is_left_to_peft(tiny_checkpoint, lora, reason):
    model = adapted_model(tiny_checkpoint, **lora)
    assert reason in why_not_fused(model.get_base_model().model.layers)


def test_keep_mask_drops_the_share_it_is_told():
    seed = torch.tensor([12345], dtype=torch.int32)
    keep = keep_mask(1000, 1000, seed, 0.05)
    assert abs(keep.float().mean().item() - 0.95) < 0.002
    other = keep_mask(1000, 1000, seed + 1, 0.05)
    both = (~keep & ~other).float().mean().item()  # independent masks meet in 0.05² of the places
    assert abs(both - 0.0025) < 0.0005
    for axis in (0, 1):  # no row and no column is favoured
        share = keep.float().mean(dim=axis)
        assert share.std() < 1.2 * (0.05 * 0.95 / 1000) ** 0.5


@pytest.mark.parametrize("probability", [0.0, 0.2])
def test_lora_linear_against_autograd(probability):
    torch.manual_seed(0)
    linears = [torch.nn.Linear(24, width, bias=True).double() for width in (16, 8)]
    x = torch.randn(40, 24, dtype=torch.double, requires_grad=True)
    seed = torch.tensor([7], dtype=torch.int32)
    a = [torch.randn(3, 24, dtype=torch.double, requires_grad=True), torch.randn(5, 24, dtype=torch.double, requires_grad=True)]
    b = [torch.randn(w, r, dtype=torch.double, requires_grad=True) for w, r in ((16, 3), (8, 5))]
    group = gather_group(linears)._replace(lora_a=tuple(a), lora_b=tuple(b), scales=(2.0, 0.5))
    dropped = drop(x, seed, probability)
    expected = torch.cat(
        [
            linear(x) + scale * F.linear(F.linear(dropped, low), high)
            for linear, low, high, scale in zip(linears, a, b, group.scales)
        ],
        dim=1,
    )
    ours = lora_linear(x, group, seed, probability)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(ours, expected)
    inputs = [x, *a, *b]
    for mine, theirs in zip(torch.autograd.grad((ours * weights).sum(), inputs), torch.autograd.grad((expected * weights).sum(), inputs)):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("probability", [0.0, 0.2])
def test_swiglu_against_autograd(probability):
    torch.manual_seed(0)
    gate_up = torch.randn(30, 2 * 20, dtype=torch.double, requires_grad=True)
    lora_a = torch.randn(16, 20, dtype=torch.double, requires_grad=True)
    seed = torch.tensor([99], dtype=torch.int32)
    gate, up = gate_up.chunk(2, dim=1)
    act = F.silu(gate) * up
    expected = torch.cat([act, drop(act, seed, probability) @ lora_a.t()], dim=1)
    ours = swiglu_lora(gate_up, lora_a, seed, probability)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(ours, expected)
    inputs = [gate_up, lora_a]
    for mine, theirs in zip(torch.autograd.grad((ours * weights).sum(), inputs), torch.autograd.grad((expected * weights).sum(), inputs)):
        torch.testing.assert_close(mine, theirs)
