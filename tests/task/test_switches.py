"""What learns, what stays, where it starts from, and what a checkpoint holds: each by a run of the pipeline."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from task.helpers_run import Job, Run, checkpoint_parameters, train

from swift_plugin.errors import InputError
from swift_plugin.model.checkpoint import read_head, write_reference_head
from swift_plugin.model.turn_predictor import TurnPredictor

LAYERS, PROJECTIONS = 4, 7  # of the tiny checkpoint
STEPS = {"max_steps": 2, "save_steps": 2, "logging_steps": 2}


@pytest.fixture(scope="module")
def run(tiny_checkpoint, sessions, tmp_path_factory):
    """A run of two steps with other options."""

    def call(options: dict | None = None, **turn) -> Run:
        output = tmp_path_factory.mktemp("run") / "out"
        options = {**STEPS, **(options or {})}
        return train(Job(model=tiny_checkpoint, output=output, train=sessions["short"], options=options, turn=turn))

    return call


@pytest.fixture(scope="module")
def plain(run) -> Run:
    """LoRA and head, both learning."""
    return run()


def moved(run: Run) -> set[str]:
    after = run.trainer.model.state_dict()
    return {name for name in after if not torch.equal(after[name], run.before[name])}


def adapter_layers(folder: Path) -> set[int]:
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as file:
        return {int(re.search(r"layers\.(\d+)\.", name).group(1)) for name in file.keys()}


def test_a_checkpoint_holds_adapter_and_head_and_no_base_weight(plain):
    with safe_open(plain.last / "adapter_model.safetensors", framework="pt") as file:
        assert len(file.keys()) == 2 * LAYERS * PROJECTIONS
        assert all("lora_" in name for name in file.keys())
    names = {path.name for path in plain.last.iterdir()}
    assert names <= {
        "README.md", "adapter_config.json", "adapter_model.safetensors", "additional_config.json", "args.json",
        "optimizer.pt", "rng_state.pth", "scheduler.pt", "trainer_state.json", "training_args.bin",
        "turn_head.json", "turn_head.safetensors",
    }  # fmt: skip
    assert {"adapter_config.json", "args.json", "optimizer.pt", "turn_head.json", "turn_head.safetensors"} <= names
    assert {"swift_plugin", "torch", "transformers", "peft", "ms-swift"} <= json.loads(
        (plain.last / "turn_head.json").read_text()
    )["versions"].keys()


def test_a_frozen_thinker_has_no_adapter_and_only_its_head_learns(run):
    frozen = run(turn_freeze_thinker=True)
    assert moved(frozen) == {"turn_head.classifier.weight", "turn_head.classifier.bias"}
    assert not list(frozen.last.glob("adapter*")) and not list(frozen.last.glob("model*.safetensors"))
    assert not frozen.trainer.model.model.training
    assert json.loads((frozen.folder / "train_summary.json").read_text())["variant"] == "frozen_thinker"


@pytest.mark.parametrize("kind", ["file", "folder", "reference"])
def test_a_frozen_head_stays_as_it_was_loaded(run, plain, tmp_path, kind):
    source = {"file": plain.last / "turn_head.safetensors", "folder": plain.last, "reference": tmp_path / "turn_head.pt"}
    config, state = read_head(plain.last)
    write_reference_head(config, state, source["reference"])
    frozen = run(turn_freeze_head=True, turn_head_checkpoint=str(source[kind]))
    assert all("lora_" in name for name in moved(frozen))
    assert len([name for name in moved(frozen) if "lora_B" in name]) == LAYERS * PROJECTIONS
    head = load_file(frozen.last / "turn_head.safetensors")
    assert head.keys() == state.keys() and all(torch.equal(head[name], state[name]) for name in state)
    predictor = frozen.trainer.model.get_base_model()
    assert not predictor.turn_head.training and predictor.model.training


def test_adapters_go_on_with_a_fresh_optimizer(run, plain):
    continued = run({"adapters": plain.last})
    start = {name.replace(".default", ""): tensor for name, tensor in continued.before.items()}
    for name, tensor in load_file(plain.last / "adapter_model.safetensors").items():
        assert torch.equal(start[name], tensor)
    for name, tensor in load_file(plain.last / "turn_head.safetensors").items():
        assert torch.equal(continued.before[f"base_model.model.turn_head.{name}"], tensor)
    assert continued.trainer.state.global_step == 2
    assert {state["step"].item() for state in continued.trainer.optimizer.state_dict()["state"].values()} == {2}
    assert len([name for name in moved(continued) if "lora_" in name]) == 2 * LAYERS * PROJECTIONS


def test_an_adapter_of_the_reference_and_its_head(run, plain, tmp_path):
    """It was put on the language model alone, so its names lack one `model.`; the head lies beside it."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    tensors = load_file(plain.last / "adapter_model.safetensors")
    renamed = {name.replace("base_model.model.model.", "base_model.model."): value for name, value in tensors.items()}
    save_file(renamed, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain.last / "adapter_config.json").read_text())
    config["target_modules"] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    (folder / "adapter_config.json").write_text(json.dumps(config))
    shutil.copy(plain.last / "args.json", folder)
    write_reference_head(*read_head(plain.last), tmp_path / "turn_head.pt")
    continued = run({"adapters": folder}, turn_head_checkpoint=str(tmp_path / "turn_head.pt"))
    start = {name.replace(".default", ""): tensor for name, tensor in continued.before.items()}
    assert all(torch.equal(start[name], tensor) for name, tensor in tensors.items())
    assert checkpoint_parameters(continued.last).keys() == checkpoint_parameters(plain.last).keys()


def test_the_last_layers_alone_carry_adapters(run):
    assert adapter_layers(run(turn_lora_last_n_layers=2).last) == {2, 3}


def test_more_layers_than_there_are_is_refused_with_both_numbers(run):
    with pytest.raises(InputError, match="turn_lora_last_n_layers=9, but the language model has 4 layers"):
        run(turn_lora_last_n_layers=9)


def test_target_modules_are_those_of_the_language_model(run):
    some = run({"target_modules": ["q_proj", "down_proj"], "lora_rank": 3, "lora_alpha": 6})
    with safe_open(some.last / "adapter_model.safetensors", framework="pt") as file:
        names = list(file.keys())
        assert {file.get_slice(name).get_shape()[0] for name in names if "lora_A" in name} == {3}
    assert {name.split(".")[-3] for name in names} == {"q_proj", "down_proj"}
    assert len(names) == 2 * 2 * LAYERS
    assert not [name for name, _ in some.trainer.model.named_modules() if "audio" in name or "visual" in name]


def test_a_module_that_is_not_there_is_refused(run):
    with pytest.raises(InputError, match="out_proj: not in the language model, which has down_proj, "):
        run({"target_modules": ["q_proj", "out_proj"]})


@pytest.fixture
def no_weight_is_read(monkeypatch):
    def load(*args, **kwargs):
        raise AssertionError("a weight was read before the options were checked")

    monkeypatch.setattr(TurnPredictor, "load", load)


@pytest.mark.usefixtures("no_weight_is_read")
@pytest.mark.parametrize(
    ("options", "turn", "messages"),
    [
        (
            {"packing": "false", "loss_type": "cross_entropy", "modules_to_save": "lm_head", "lora_bias": "all"},
            {"turn_freeze_thinker": True, "turn_freeze_head": True, "turn_head_learning_rate": -1},
            [
                "leave nothing to train", "turn_head_learning_rate=-1.0 must be positive", "--loss_type cross_entropy",
                "--modules_to_save lm_head", "--lora_bias all", "turn_freeze_head: a new head would stay random",
            ],
        ),
        (
            {"optimizer": "galore", "eval_metric": "acc", "trainable_parameters": "norm", "init_weights": "pissa"},
            {"turn_head_checkpoint": "missing.pt", "turn_layout": "other", "turn_class_weights": [1, 2]},
            [
                "--optimizer galore", "--eval_metric acc", "--trainable_parameters norm", "--init_weights pissa",
                "missing.pt: no such file", "turn_layout='other' must be one of shared, anchor",
                "turn_class_weights=[1.0, 2.0] must be 3 numbers",
            ],
        ),
        (
            {"per_device_train_batch_size": 0, "gradient_accumulation_steps": 0},
            {"turn_freeze_thinker": True, "turn_lora_last_n_layers": 2, "turn_head_layer_fusion": "sum"},
            [
                "--per_device_train_batch_size 0 must be at least 1", "--gradient_accumulation_steps 0",
                "turn_lora_last_n_layers has no effect with turn_freeze_thinker", "layer_fusion='sum' must be one of mean, concat",
            ],
        ),
    ],
)  # fmt: skip
def test_contradictions_are_told_together(run, options, turn, messages):
    with pytest.raises(InputError) as error:
        run(options, **turn)
    assert [message for message in messages if message not in str(error.value)] == []
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("no_weight_is_read")
@pytest.mark.parametrize(
    ("key", "turn", "message"),
    [
        ("adapters", {"turn_freeze_thinker": True}, "turn_freeze_thinker with --adapters"),
        ("adapters", {"turn_lora_last_n_layers": 2}, "turn_lora_last_n_layers with --adapters"),
        ("resume_from_checkpoint", {"turn_freeze_thinker": True}, "has an adapter, but turn_freeze_thinker is True"),
    ],
)
def test_a_checkpoint_of_another_kind_is_refused(run, plain, key, turn, message):
    with pytest.raises(InputError, match=re.escape(message)):
        run({key: plain.last}, **turn)


@pytest.mark.usefixtures("no_weight_is_read")
def test_unknown_options_and_wrong_types_are_told_together(run):
    with pytest.raises(InputError) as error:
        run(turn_colour="red", turn_freeze_head="perhaps", turn_focal_gamma="much")
    for message in ("unknown option turn_colour", "turn_freeze_head='perhaps' is not true or false", "is not a number"):
        assert message in str(error.value)


@pytest.mark.usefixtures("no_weight_is_read")
def test_a_deepspeed_file_with_its_own_optimizer_is_refused(run, tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR"}, "zero_optimization": {"stage": 1}}))
    with pytest.raises(InputError, match="part optimizer.*part scheduler"):
        run({"deepspeed": file})
