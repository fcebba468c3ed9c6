"""bf16 weights: readouts as good as the native model's own in bf16, head and loss in float32."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from task.helpers_run import Job, make_small_cache, train
from transformers import Qwen2_5OmniForConditionalGeneration

from swift_plugin.cache.reader import CacheReader
from swift_plugin.model.head import TurnHeadConfig
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.collator import OpenStreamCollator
from swift_plugin.task.dataset import anchor_rows, group_by_block
from swift_plugin.task.trainer import TurnTrainer

AS_CLOSE = 1.2  # times the native model's own error


@pytest.fixture(scope="module")
def rows(tiny_checkpoint, tmp_path_factory) -> list[dict]:
    """The first block and two behind a history of 20 s: positions past 256 are the first that bf16 does not hold."""
    folder = tmp_path_factory.mktemp("long") / "s"
    blocks = list(group_by_block(anchor_rows(make_small_cache(folder, tiny_checkpoint, end=29.0, memory_seconds=20))))
    return [blocks[0], *blocks[11:13]]


@torch.no_grad()
def native_readouts(language_model, rows: list[dict]) -> torch.Tensor:
    """`last_hidden_state` of the last token by transformers' own forward, anchor by anchor, [N, H]."""
    reader = CacheReader(Path(rows[0]["manifest"]))
    states = []
    for row in rows:
        for tail in row["tails"]:
            embeddings, layout = reader.sequence(row["block_index"], (tail,))
            output = language_model(
                inputs_embeds=embeddings[None].to(language_model.dtype),
                position_ids=layout.position_ids[:, None],
                use_cache=False,
            )
            states.append(output.last_hidden_state[0, -1])
    return torch.stack(states)


def error(states: torch.Tensor, reference: torch.Tensor) -> float:
    return ((states.double() - reference.double()).norm() / reference.double().norm()).item()


@pytest.fixture(scope="module")
def native(tiny_checkpoint, tiny_thinker, rows) -> tuple[torch.Tensor, float]:
    """The float32 readouts, and how far the native bf16 model is from them."""
    reference = native_readouts(tiny_thinker.model, rows)
    half = Qwen2_5OmniForConditionalGeneration.from_pretrained(tiny_checkpoint, dtype=torch.bfloat16).thinker.eval()
    return reference, error(native_readouts(half.model, rows), reference)


@pytest.mark.parametrize("shared", [True, False], ids=["shared history", "an anchor a sequence"])
@pytest.mark.parametrize("autocast", [False, True], ids=["as predict runs it", "as training runs it"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_readouts_in_bf16_are_as_close_as_the_native_ones(tiny_checkpoint, rows, native, shared, autocast, attention):
    reference, native_error = native
    model = TurnPredictor.load(tiny_checkpoint, dtype=torch.bfloat16).eval()
    model.attach_head(TurnHeadConfig(hidden_size=model.config.hidden_size))
    model.set_attention(attention)
    batch = OpenStreamCollator(shared=shared)(rows)
    inputs = {name: value for name, value in batch.items() if name not in ("labels", "present")}
    inputs["inputs_embeds"] = inputs["inputs_embeds"].to(torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        states = model.read(**inputs)[:, 0]
    ours = error(states, reference)
    print(f"error {ours:.2e}, native {native_error:.2e}, ratio {ours / native_error:.2f}")
    assert states.dtype == torch.bfloat16
    assert native_error > 1e-3  # bf16 it is
    assert ours < AS_CLOSE * native_error


@pytest.fixture(scope="module")
def half_run(tiny_checkpoint, sessions, tmp_path_factory):
    """A step and an evaluation with bf16 weights, and what head and loss were given and gave."""
    seen: dict[str, list] = {"head": [], "loss": []}
    compute_loss = TurnTrainer.compute_loss

    def watched(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        head = self.accelerator.unwrap_model(model).get_base_model().turn_head
        note = lambda module, args, output: seen["head"].append((module, args[0].detach(), output.logits.detach()))
        hook = head.register_forward_hook(note)
        loss, outputs = compute_loss(self, model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        hook.remove()
        seen["loss"].append(loss.detach())
        if len(seen["head"]) == 1:  # before the step
            seen["first"] = [parameter.detach().clone() for parameter in head.classifier.parameters()]
        return (loss, outputs) if return_outputs else loss

    options = {"torch_dtype": "bfloat16", "max_steps": 1, "per_device_train_batch_size": 8, "save_steps": 1, "eval_steps": 1}
    output = tmp_path_factory.mktemp("half") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TurnTrainer, "compute_loss", watched)
        run = train(Job(model=tiny_checkpoint, output=output, train=sessions["short"], val=sessions["val"], options=options))
    return run, seen


def test_what_learns_is_float32_and_the_rest_bf16(half_run):
    run, _ = half_run
    dtypes = {"learns": set(), "frozen": set()}
    for parameter in run.trainer.model.parameters():
        dtypes["learns" if parameter.requires_grad else "frozen"].add(parameter.dtype)
    assert dtypes == {"learns": {torch.float32}, "frozen": {torch.bfloat16}}
    assert {tensor.dtype for tensor in run.parameters().values()} == {torch.float32}
    assert run.trainer.args.bf16


def test_head_and_loss_are_float32(half_run):
    """To the last bit what float32 gives for the bf16 readouts; bf16 would be a thousandth off."""
    _, seen = half_run
    _, states, logits = seen["head"][0]
    weight, bias = seen["first"]
    assert states.dtype == torch.bfloat16
    assert logits.dtype == seen["loss"][0].dtype == torch.float32
    expected = F.linear(states.float().mean(dim=1), weight, bias).view_as(logits)
    assert torch.equal(logits, expected)
    rounded = F.linear(states.mean(dim=1), weight.bfloat16(), bias.bfloat16()).view_as(logits).float()
    assert not torch.allclose(rounded, logits, rtol=1e-4)


def test_the_loss_is_close_to_that_in_float32(half_run, tiny_checkpoint, sessions, tmp_path):
    run, _ = half_run
    options = {"max_steps": 1, "per_device_train_batch_size": 8, "save_steps": 1, "eval_steps": 1}
    job = Job(model=tiny_checkpoint, output=tmp_path / "out", train=sessions["short"], val=sessions["val"], options=options)
    whole = train(job)
    print(f"loss {run.losses()[0]:.6f} in bf16, {whole.losses()[0]:.6f} in float32")
    assert run.losses()[0] == pytest.approx(whole.losses()[0], rel=2e-3)
