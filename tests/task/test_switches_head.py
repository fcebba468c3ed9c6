"""The head in all its forms: trained by the pipeline, saved, read again, and against its written formula in float64."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from task.helpers_run import Job, train

from swift_plugin.errors import InputError
from swift_plugin.model.head import TurnHead, TurnHeadConfig
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.collator import OpenStreamCollator
from swift_plugin.task.dataset import anchor_rows, group_by_block
from swift_plugin.task.predict import load_predictor, predict_session

FORMS = {
    "one layer": {},
    "mean": {"turn_head_num_input_layers": 3},
    "mixture": {"turn_head_num_input_layers": 3, "turn_head_learnable_layer_mixture": True},
    "concat": {"turn_head_num_input_layers": 2, "turn_head_layer_fusion": "concat"},
    "auxiliary": {"turn_head_transition_auxiliary": True, "turn_transition_weight": 0.25},
    "all": {
        "turn_head_num_input_layers": 4, "turn_head_learnable_layer_mixture": True, "turn_head_transition_auxiliary": True,
    },
}  # fmt: skip
HIDDEN = 64  # of the tiny checkpoint


@pytest.fixture(scope="module")
def trained(tiny_checkpoint, sessions, tmp_path_factory):
    """A run of one step with a form of the head, evaluated, made once; the Thinker is frozen, as it plays no part."""
    runs = {}

    def get(form: str):
        if form not in runs:
            job = Job(
                model=tiny_checkpoint,
                output=tmp_path_factory.mktemp("run") / "out",
                train=sessions["short"],
                val=sessions["val"],
                options={"max_steps": 1, "save_steps": 1, "eval_steps": 1},
                turn={"turn_freeze_thinker": True, **FORMS[form]},
            )
            runs[form] = train(job)
        return runs[form]

    return get


@pytest.mark.parametrize("form", FORMS)
def test_every_form_learns_whole_and_is_read_again(trained, tiny_checkpoint, form):
    run = trained(form)
    after = run.trainer.model.state_dict()
    head = {name for name in after if name.startswith("turn_head.")}
    assert {name for name in after if not torch.equal(after[name], run.before[name])} == head
    config = json.loads((run.last / "turn_head.json").read_text())["head_config"]
    assert {f"turn_head_{name}": config[name] for name in ("num_input_layers", "layer_fusion")} == {
        "turn_head_num_input_layers": FORMS[form].get("turn_head_num_input_layers", 1),
        "turn_head_layer_fusion": FORMS[form].get("turn_head_layer_fusion", "mean"),
    }
    layers = 2 if form == "concat" else 1
    assert after["turn_head.classifier.weight"].shape == (30, HIDDEN * layers)
    assert ("turn_head.layer_mixture" in head) == (form in ("mixture", "all"))
    assert ("turn_head.transition.weight" in head) == (form in ("auxiliary", "all"))
    loaded = load_predictor(run.last, tiny_checkpoint, dtype=torch.float32, device="cpu").state_dict()
    assert all(torch.equal(loaded[name], after[name]) for name in head)


@pytest.mark.parametrize("form", FORMS)
def test_each_fusion_against_its_formula(form):
    """float64 by numpy. Mixture: Σ_l softmax(w)_l h_l; mean: Σ_l h_l / L; concat: one behind the other."""
    options = {name.removeprefix("turn_head_"): value for name, value in FORMS[form].items() if "turn_head_" in name}
    config = TurnHeadConfig(hidden_size=5, dropout=0.0, **options)
    head = TurnHead(config)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
    states = torch.randn(7, config.num_input_layers, 5)
    h = states.double().numpy()
    if config.layer_fusion == "concat":
        fused = np.concatenate([h[:, layer] for layer in range(config.num_input_layers)], axis=1)
    elif config.learnable_layer_mixture:
        weights = np.exp(head.layer_mixture.detach().double().numpy())
        fused = sum(w * h[:, layer] for layer, w in enumerate(weights / weights.sum()))
    else:
        fused = h.sum(axis=1) / config.num_input_layers
    w, b = (head.classifier.weight.detach().double().numpy(), head.classifier.bias.detach().double().numpy())
    output = head(states)
    np.testing.assert_allclose(output.logits.detach().numpy(), (fused @ w.T + b).reshape(7, 10, 3), rtol=1e-5, atol=1e-5)
    assert (output.transition_logits is not None) == config.transition_auxiliary
    if config.transition_auxiliary:
        w, b = head.transition.weight.detach().double().numpy(), head.transition.bias.detach().double().numpy()
        np.testing.assert_allclose(output.transition_logits.detach().numpy(), fused @ w.T + b, rtol=1e-5, atol=1e-5)


def test_a_new_mixture_begins_as_the_mean():
    torch.manual_seed(0)
    states = torch.randn(4, 3, 8)
    mixture = TurnHead(TurnHeadConfig(hidden_size=8, num_input_layers=3, learnable_layer_mixture=True)).eval()
    mean = TurnHead(TurnHeadConfig(hidden_size=8, num_input_layers=3)).eval()
    mean.classifier = mixture.classifier
    torch.testing.assert_close(mixture(states).logits, mean(states).logits)


def test_more_layers_than_the_model_has_are_refused(tiny_checkpoint):
    model = TurnPredictor.load(tiny_checkpoint, dtype=torch.float32)
    with pytest.raises(InputError, match="num_input_layers=5, but the language model has 4 layers"):
        model.attach_head(TurnHeadConfig(hidden_size=HIDDEN, num_input_layers=5))


def test_layers_that_are_read_are_not_kept_whole(tiny_checkpoint, sessions):
    """When the last layer runs, no output of an earlier one is alive but that of the layer before it."""
    model = TurnPredictor.load(tiny_checkpoint, dtype=torch.float32).eval()
    model.attach_head(TurnHeadConfig(hidden_size=HIDDEN, num_input_layers=4))
    outputs, alive = [], []

    def watch(layer, args, output):
        gc.collect()
        alive.append(sum(reference() is not None for reference in outputs))
        outputs.append(weakref.ref(output[0] if isinstance(output, tuple) else output))

    for layer in model.model.layers[:-1]:
        layer.register_forward_hook(watch)
    batch = OpenStreamCollator()(list(group_by_block(anchor_rows(sessions["val"]))))
    with torch.no_grad():
        model(**{name: value for name, value in batch.items() if name not in ("labels", "present")})
    assert max(alive) <= 1


def test_the_auxiliary_is_measured_apart_and_not_predicted(trained, sessions):
    run, plain = trained("auxiliary"), trained("one layer")
    evaluation = run.evaluations()[-1]
    assert {"eval_transition_loss", "eval_transition_AP"} <= evaluation.keys()
    assert not [name for name in plain.evaluations()[-1] if "transition" in name]
    model = run.trainer.model.eval()
    rows = list(group_by_block(anchor_rows(sessions["val"])))
    batch = OpenStreamCollator()(rows)
    labels = batch.pop("labels")[batch.pop("present")].double().numpy()
    with torch.no_grad():
        logits = model(**batch).transition_logits.double().numpy()
    # by hand: a change is 1 - <y_{h-1}, y_h>, unknown where either row is; here targets are one-hot
    change = 1 - (labels[:, :-1] * labels[:, 1:]).sum(axis=-1)
    known = ~np.isnan(change)
    probability = 1 / (1 + np.exp(-logits[known]))
    y = change[known]
    expected = -(y * np.log(probability) + (1 - y) * np.log(1 - probability)).mean()
    assert evaluation["eval_transition_loss"] == pytest.approx(expected, rel=1e-4)
    assert evaluation["eval_transition_AP"] == pytest.approx(average_precision_score(y, probability), rel=1e-4)
    assert evaluation["eval_loss"] != pytest.approx(expected, rel=1e-3)
    batch = next(predict_session(model, sessions["val"], batch_size=2))
    assert batch.probabilities.shape[1:] == (10, 3)
    np.testing.assert_allclose(batch.probabilities.sum(axis=-1), 1, rtol=1e-5)

