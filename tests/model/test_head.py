"""The head's forms against a few lines of torch, its float32, and what it refuses."""

import pytest
import torch
import torch.nn.functional as F

from swift_plugin.errors import InputError
from swift_plugin.model.head import TurnHead, TurnHeadConfig
from swift_plugin.model.turn_predictor import TurnPredictor

H = 16


def states(layers: int, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(5, layers, H, generator=torch.Generator().manual_seed(0)).to(dtype)


def head(**options) -> TurnHead:
    torch.manual_seed(0)
    return TurnHead(TurnHeadConfig(hidden_size=H, **options)).eval()


def test_one_layer():
    module, hidden = head(), states(1)
    expected = F.linear(hidden[:, 0], module.classifier.weight, module.classifier.bias).view(5, 10, 3)
    output = module(hidden)
    assert torch.equal(output.logits, expected)
    assert output.transition_logits is None


def test_the_mean_of_layers():
    module, hidden = head(num_input_layers=3), states(3)
    assert torch.equal(module(hidden).logits, head()(hidden.mean(dim=1, keepdim=True)).logits)


def test_concatenated_layers():
    module, hidden = head(num_input_layers=2, layer_fusion="concat"), states(2)
    fused = torch.cat([hidden[:, 0], hidden[:, 1]], dim=-1)
    expected = F.linear(fused, module.classifier.weight, module.classifier.bias).view(5, 10, 3)
    assert torch.equal(module(hidden).logits, expected)
    assert module.classifier.weight.shape == (30, 2 * H)


def test_a_learned_mixture_begins_as_the_mean_and_follows_its_weights():
    module, hidden = head(num_input_layers=3, learnable_layer_mixture=True), states(3)
    torch.testing.assert_close(module(hidden).logits, head()(hidden.mean(dim=1, keepdim=True)).logits)
    module.layer_mixture.data = torch.tensor([0.0, 100.0, 0.0])
    torch.testing.assert_close(module(hidden).logits, head()(hidden[:, 1:2]).logits)
    module.layer_mixture.data.zero_()
    module(hidden).logits.square().sum().backward()
    assert module.layer_mixture.grad.abs().min() > 0


def test_the_transition_auxiliary_has_an_output_a_horizon():
    module, hidden = head(transition_auxiliary=True), states(1)
    output = module(hidden)
    assert torch.equal(output.transition_logits, F.linear(hidden[:, 0], module.transition.weight, module.transition.bias))
    assert output.transition_logits.shape == (5, 10)


def test_dropout_in_training_only():
    module, hidden = head(dropout=0.5), states(1)
    assert torch.equal(module(hidden).logits, module(hidden).logits)
    module.train()
    assert not torch.equal(module(hidden).logits, module(hidden).logits)


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_it_computes_in_float32_whatever_comes(weights):
    """Inside autocast, on bf16 states, and with weights that a DeepSpeed engine has made bf16."""
    module, hidden = head(transition_auxiliary=True).to(weights), states(1, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        output = module(hidden)
    weight, bias = module.classifier.weight.float(), module.classifier.bias.float()
    assert output.logits.dtype == output.transition_logits.dtype == torch.float32
    assert torch.equal(output.logits, F.linear(hidden[:, 0].float(), weight, bias).view(5, 10, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 1.0}, r"dropout=1.0 must lie in \[0, 1\)"),
        ({"num_input_layers": 0}, "num_input_layers=0 must be at least 1"),
        ({"layer_fusion": "max"}, "layer_fusion='max' must be one of mean, concat"),
        ({"num_horizons": 8}, "8 horizons of 3 classes; this task has 10 of 3"),
        ({"learnable_layer_mixture": True}, "learnable_layer_mixture needs num_input_layers of 2 or more"),
        ({"learnable_layer_mixture": True, "num_input_layers": 2, "layer_fusion": "concat"}, "use layer_fusion='mean'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message) as error:
        TurnHeadConfig(hidden_size=H, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_size": 32}, "the head has hidden_size 32, the language model 64"),
        ({"hidden_size": 64, "num_input_layers": 9}, "num_input_layers=9, but the language model has 4 layers"),
    ],
)
def test_a_head_for_another_model_is_refused(tiny_checkpoint, options, message):
    model = TurnPredictor.load(tiny_checkpoint, dtype=torch.float32)
    with pytest.raises(InputError, match=message):
        model.attach_head(TurnHeadConfig(**options))
