"""One optimizer step is the mean over the known anchor-horizons of all its batches, however they are cut.

The long session has 15 blocks: a step of 8, and the short last window of the epoch with 7; the short one has 7, a last
window from the start. The last block has fewer than ten anchors, and some target rows are unknown.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from task.helpers_run import Job, Run, lora_b, relative_difference, train

from swift_plugin.model.checkpoint import load_head_weights, read_head
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.collator import OpenStreamCollator
from swift_plugin.task.dataset import anchor_rows, group_by_block

CUTS = ((8, 1), (4, 2), (2, 4), (1, 8))
EXACT = 1e-6  # float32 sums in another order


@pytest.fixture(scope="module")
def run_with(tiny_checkpoint, sessions, tmp_path_factory):
    """A run by session, batch size and accumulation, made once."""
    runs: dict[tuple, Run] = {}

    def get(session: str, batch: int, accumulation: int, *, turn: dict | None = None, **options) -> Run:
        key = (session, batch, accumulation, str(turn), *options.items())
        if key not in runs:
            cut = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation, "max_grad_norm": 0}
            job = Job(
                model=tiny_checkpoint,
                output=tmp_path_factory.mktemp("run") / "out",
                train=sessions[session],
                options={**cut, **options},
                turn=turn or {},
            )
            runs[key] = train(job)
        return runs[key]

    return get


@pytest.mark.parametrize(("name", "blocks"), [("long", 15), ("short", 7)])
def test_the_sessions_have_a_short_window_and_unknown_rows(sessions, name, blocks):
    rows = group_by_block(anchor_rows(sessions[name]))
    unknown = torch.tensor([row for block in rows["targets"] for row in block])[:, 1:].isnan().any(dim=-1)
    assert [len(tails) for tails in rows["tails"]] == [10] * (blocks - 1) + [5]
    assert 0 < unknown.float().mean() < 0.2


@pytest.mark.parametrize("session", ["long", "short"])
@pytest.mark.parametrize(("batch", "accumulation"), CUTS[1:])
def test_however_a_step_is_cut_it_gives_the_same_parameters_and_loss(run_with, session, batch, accumulation):
    """A step of AdamW over a whole window, and over one that is short from the start.

    AdamW's default ε of 1e-8 is as small as a gradient's rounding, and would turn it into whole steps.
    """
    whole, cut = (run_with(session, *c, max_steps=1, adam_epsilon=1e-6) for c in ((8, 1), (batch, accumulation)))
    parameters = relative_difference(cut.parameters(), whole.parameters())
    update = relative_difference(lora_b(cut.parameters()), lora_b(whole.parameters()))
    loss = abs(cut.losses()[0] - whole.losses()[0]) / whole.losses()[0]
    print(f"{session} {batch} x {accumulation}: parameters {parameters:.1e}, update of B {update:.1e}, loss {loss:.1e}")
    assert parameters < EXACT
    assert loss < EXACT


@pytest.mark.parametrize(("batch", "accumulation"), CUTS[1:])
def test_an_epoch_with_a_short_last_window_is_the_same(run_with, batch, accumulation):
    """With SGD, whose step is the gradient itself, where AdamW's hides the gradient's size."""
    whole, cut = (run_with("long", *c, optim="sgd", learning_rate=0.1) for c in ((8, 1), (batch, accumulation)))
    update = relative_difference(lora_b(cut.parameters()), lora_b(whole.parameters()))
    losses = [abs(a - b) / b for a, b in zip(cut.losses(), whole.losses(), strict=True)]
    print(f"epoch {batch} x {accumulation}: update of B {update:.1e}, losses {max(losses):.1e} of {whole.losses()}")
    assert len(losses) == 2
    assert update < 10 * EXACT  # of the update; of the parameters it is far less
    assert max(losses) < EXACT


def expected_loss(run: Run, model_dir, manifest_path, *, transition_weight: float = 0.0) -> float:
    """The mean over all known anchor-horizons of the session, by torch's own cross-entropy on the untrained model."""
    model = TurnPredictor.load(model_dir, dtype=torch.float32)
    config, state = read_head(run.last)
    model.attach_head(config)
    start = {name.split("turn_head.")[1]: tensor for name, tensor in run.before.items() if "turn_head." in name}
    assert start.keys() == state.keys()
    load_head_weights(model.turn_head, start, source=run.last)
    rows = group_by_block(anchor_rows(manifest_path))
    batch = OpenStreamCollator()(list(rows))
    labels = batch.pop("labels")[batch.pop("present")]
    with torch.no_grad():
        output = model.eval()(**batch)
    targets = labels[:, 1:].flatten(0, 1)
    known = ~targets.isnan().any(dim=-1)
    loss = F.cross_entropy(output.logits.flatten(0, 1)[known], targets[known])
    if transition_weight:
        classes = labels.argmax(dim=-1)  # one-hot rows
        changes = (classes[:, 1:] != classes[:, :-1]).float()
        seen = ~labels.isnan().any(dim=-1)
        pairs = seen[:, 1:] & seen[:, :-1]
        auxiliary = F.binary_cross_entropy_with_logits(output.transition_logits[pairs], changes[pairs])
        loss = loss + transition_weight * auxiliary
    return loss.item()


@pytest.mark.parametrize("turn", [{}, {"turn_head_transition_auxiliary": True, "turn_transition_weight": 0.7}])
def test_the_logged_loss_is_the_mean_over_known_rows(run_with, sessions, tiny_checkpoint, turn):
    """All seven blocks in one step of four batches, the last one short."""
    run = run_with("short", 2, 4, turn=turn, max_steps=1)
    expected = expected_loss(
        run, tiny_checkpoint, sessions["short"], transition_weight=turn.get("turn_transition_weight", 0.0)
    )
    print(f"logged {run.losses()[0]:.7f}, by hand {expected:.7f}")
    assert run.losses()[0] == pytest.approx(expected, rel=EXACT)


def test_the_transition_auxiliary_has_its_own_mean_over_a_step(run_with):
    """Its known transitions are others than the known rows, so each needs a denominator of its own."""
    turn = {"turn_head_transition_auxiliary": True, "turn_transition_weight": 0.7}
    whole, cut = (run_with("long", *c, turn=turn, optim="sgd", learning_rate=0.1) for c in ((8, 1), (2, 4)))
    update = relative_difference(lora_b(cut.parameters()), lora_b(whole.parameters()))
    losses = [abs(a - b) / b for a, b in zip(cut.losses(), whole.losses(), strict=True)]
    print(f"auxiliary 2 x 4: update of B {update:.1e}, losses {max(losses):.1e} of {whole.losses()}")
    assert update < 10 * EXACT
    assert max(losses) < EXACT


def test_single_anchors_give_the_step_of_their_block(run_with):
    """Sampling by anchor makes items of one anchor; one step over the whole session is the same mean."""
    options = {"max_steps": 1, "adam_epsilon": 1e-6}
    blocks, anchors = (run_with("short", 16, 5, turn={"turn_sampling": s}, **options) for s in ("block", "anchor"))
    difference = relative_difference(anchors.parameters(), blocks.parameters())
    print(f"anchors against blocks: parameters {difference:.1e}, loss {anchors.losses()} {blocks.losses()}")
    assert difference < EXACT
    assert anchors.losses() == pytest.approx(blocks.losses(), rel=EXACT)
