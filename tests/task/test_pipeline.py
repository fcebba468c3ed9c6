"""Sessions in and files out, the calls from Python, and what ms-swift's other commands can do with a checkpoint."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections import Counter

import pytest
import torch
from helpers import make_cache
from safetensors.torch import load_file
from task.helpers_run import PLUGIN, Job, make_small_cache, train, untouched_process

from swift_plugin.cache.manifest import Manifest
from swift_plugin.errors import InputError
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.dataset import anchor_rows

SHORT = {"max_steps": 1, "save_strategy": "no", "logging_steps": 1}


@pytest.fixture
def run(tiny_checkpoint, sessions, tmp_path):
    def call(train_on, val=None, options: dict | None = None, **turn):
        frozen = {"turn_freeze_thinker": True, **turn}
        options = {**SHORT, **(options or {}), "dataset": train_on}
        return train(Job(model=tiny_checkpoint, output=tmp_path / "out", train=train_on, val=val, options=options, turn=frozen))

    return call


def anchors(dataset) -> list[tuple]:
    return [(row["manifest"], row["block_index"], tail) for row in dataset for tail in row["tails"]]


def rows_of(dataset) -> list[dict]:
    return [dataset[index] for index in range(len(dataset))]


def test_several_sessions_and_samples_of_them(run, sessions):
    """`#N` counts anchors; validation sessions stay apart."""
    done = run([f"{sessions['long']}#33", str(sessions["short"])], val=f"{sessions['val']}#7")
    found = anchors(rows_of(done.trainer.train_dataset))
    by_session = Counter(manifest for manifest, *_ in found)
    whole = len(anchor_rows(sessions["short"]))
    assert by_session == {str(sessions["long"]): 33, str(sessions["short"]): whole}
    assert len(set(found)) == len(found)
    validation = anchors(rows_of(done.trainer.eval_dataset))
    assert len(validation) == 7 and {manifest for manifest, *_ in validation} == {str(sessions["val"])}
    summary = json.loads((done.folder / "train_summary.json").read_text())
    assert summary["num_anchors"] == 33 + whole


def test_a_sample_larger_than_the_session_repeats_anchors(run, sessions):
    """As ms-swift does with any dataset: each anchor once, and some of them again, in rows of their own."""
    whole = len(anchor_rows(sessions["val"]))
    done = run(f"{sessions['val']}#{whole + 5}")
    counts = Counter(anchors(rows_of(done.trainer.train_dataset)))
    assert sorted(counts.values()) == [1] * (whole - 5) + [2] * 5


def test_sampling_single_anchors(run, sessions):
    done = run(f"{sessions['val']}#6", turn_sampling="anchor")
    assert [len(row["tails"]) for row in rows_of(done.trainer.train_dataset)] == [1] * 6


@pytest.mark.parametrize("sample", ["0", "-3"])
def test_a_sample_of_nothing_is_refused(run, sessions, sample):
    with pytest.raises((InputError, ValueError)):
        run(f"{sessions['val']}#{sample}")


@pytest.fixture
def no_weight_is_read(monkeypatch):
    def load(*args, **kwargs):
        raise AssertionError("a weight was read before the sessions were checked")

    monkeypatch.setattr(TurnPredictor, "load", load)


@pytest.mark.usefixtures("no_weight_is_read")
def test_a_session_in_training_and_validation_is_refused(run, sessions):
    with pytest.raises(InputError, match="covers the same time of the same recording"):
        run([str(sessions["long"]), f"{sessions['val']}#9"], val=str(sessions["val"]))


@pytest.mark.usefixtures("no_weight_is_read")
def test_another_contract_names_the_field_and_both_values(run, sessions, tiny_checkpoint, tmp_path):
    other = make_cache(tmp_path / "other", tiny_checkpoint, spans=[(0, 5)], memory_seconds=4, video_fps=None)
    with pytest.raises(InputError, match="memory_seconds is 4, but 2 in"):
        run([str(sessions["val"]), str(other)])


@pytest.mark.usefixtures("no_weight_is_read")
def test_a_random_split_is_refused(run, sessions):
    with pytest.raises(InputError, match="a random split leaks"):
        run(str(sessions["val"]), options={"split_dataset_ratio": 0.1, "save_strategy": "steps"})


def test_targets_of_another_length_are_refused(run, sessions):
    other = sessions["long"].parent / Manifest.load(sessions["long"]).target_path
    with pytest.raises(InputError, match=r"155 steps, but .* was made for 57; use the session's own targets"):
        run(str(sessions["val"]), turn_target=str(other))


def test_targets_can_be_replaced(run, sessions, tiny_checkpoint, tmp_path):
    other = make_small_cache(tmp_path / "other", tiny_checkpoint, end=11.4, seed=9)
    target = other.parent / Manifest.load(other).target_path
    done = run(str(sessions["val"]), turn_target=str(target))
    mine, theirs = (sorted(map(str, anchor_rows(path)["targets"][:])) for path in (sessions["val"], other))
    trained_on = sorted(str(rows) for row in rows_of(done.trainer.train_dataset) for rows in row["targets"])
    assert trained_on == theirs != mine


@pytest.fixture(scope="module")
def complete(tiny_checkpoint, sessions, tmp_path_factory):
    """A run with everything on: evaluation at start, best checkpoint, tensorboard, links."""
    options = {
        "max_steps": 4, "save_steps": 1, "eval_steps": 1, "save_total_limit": 2, "eval_on_start": "true",
        "create_checkpoint_symlink": "true", "metric_for_best_model": "mAP", "report_to": "tensorboard",
        "add_version": "true", "seed": 5,
    }  # fmt: skip
    output = tmp_path_factory.mktemp("run") / "out"
    run = train(Job(model=tiny_checkpoint, output=output, train=sessions["short"], val=sessions["val"], options=options))
    run.folder = next(output.iterdir())
    return run


def test_what_ms_swift_writes_is_complete(complete):
    folder = complete.folder
    assert folder.name.startswith("v0-")  # a new folder each run
    assert {"args.json", "logging.jsonl", "images", "runs", "train_summary.json", "best", "last"} <= {p.name for p in folder.iterdir()}
    assert list((folder / "images").glob("*.png"))
    lines = [json.loads(line) for line in (folder / "logging.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert len(steps) == 4
    assert {"loss", "learning_rate", "head_learning_rate", "anchors_per_second", "grad_norm"} <= steps[0].keys()
    evaluations = [line for line in lines if "eval_mAP" in line]
    assert len(evaluations) == 5
    best = max(range(1, 5), key=lambda step: evaluations[step]["eval_mAP"])
    assert (folder / "last").resolve().name == "checkpoint-4"
    assert (folder / "best").resolve().name == f"checkpoint-{best}"
    assert len(list(folder.glob("checkpoint-*"))) == 2
    assert json.loads((folder / "args.json").read_text())["model_type"] == "qwen2_5_omni_turn"


def test_the_summary_holds_the_facts_of_the_run(complete, sessions):
    summary = json.loads((complete.folder / "train_summary.json").read_text())
    evaluations = [entry["eval_loss"] for entry in summary["history"] if "eval_loss" in entry]
    assert (summary["variant"], summary["thinker_frozen"], summary["head_frozen"]) == ("thinker_lora", False, False)
    assert summary["initial_eval_loss"] == evaluations[0] and summary["final_eval_loss"] == evaluations[-1]
    assert summary["updates"] == 4 and summary["updates_per_second"] == pytest.approx(4 / summary["seconds"])
    seen = sum(len(row["tails"]) for row in rows_of(complete.trainer.train_dataset)) * summary["history"][-2]["epoch"]
    assert summary["anchors_per_second"] == pytest.approx(seen / summary["seconds"], rel=0.2)
    assert len(summary["peak_cuda_allocated_gib"]) == summary["world_size"] == 1
    assert {"torch", "transformers", "peft", "ms-swift", "swift_plugin"} <= summary["versions"].keys()
    assert summary["arguments"]["seed"] == 5 and summary["turn_options"]["head_dropout"] == 0.0
    assert summary["datasets"] == [str(sessions["short"])] and summary["val_datasets"] == [str(sessions["val"])]
    assert set(summary["checkpoints"]) == {path.name for path in complete.folder.glob("checkpoint-*")}
    assert summary["best_checkpoint"].endswith((complete.folder / "best").resolve().name)
    assert summary["evaluation_seconds"] > 0 and summary["global_batch_size"] == 4


def test_from_python_a_second_run_does_not_inherit_the_options_of_the_first(tiny_checkpoint, sessions, tmp_path):
    from swift.arguments import SftArguments
    from swift.pipelines import sft_main

    def words(name: str, **turn) -> list[str]:
        job = Job(model=tiny_checkpoint, output=tmp_path / name, train=sessions["val"], options={"max_steps": 1}, turn=turn)
        return job.argv()

    with untouched_process():
        sft_main(words("first", turn_head_num_input_layers=2, turn_freeze_thinker=True))
        assert os.environ["TURN_HEAD_NUM_INPUT_LAYERS"] == "2"
        arguments = SftArguments(
            external_plugins=[str(PLUGIN)],
            model=str(tiny_checkpoint),
            model_type="qwen2_5_omni_turn",
            tuner_type="turn",
            torch_dtype="float32",
            use_cpu=True,
            check_model=False,
            dataset=[str(sessions["val"])],
            output_dir=str(tmp_path / "second"),
            add_version=False,
            report_to=["none"],
            max_steps=1,
            model_kwargs={"turn_head_dropout": 0.5},
        )
        sft_main(arguments)
        assert "TURN_HEAD_NUM_INPUT_LAYERS" not in os.environ
    first, second = (
        json.loads((tmp_path / name / "train_summary.json").read_text())["turn_options"] for name in ("first", "second")
    )
    assert (first["head_num_input_layers"], first["freeze_thinker"]) == (2, True)
    assert (second["head_num_input_layers"], second["freeze_thinker"], second["head_dropout"]) == (1, False, 0.5)


def test_the_environment_also_carries_options(run, sessions, monkeypatch):
    """As the `ENV:` part of a YAML file does."""
    monkeypatch.setenv("TURN_FOCAL_GAMMA", "1.5")
    done = run(str(sessions["val"]))
    assert done.trainer.loss_config.focal_gamma == 1.5


def test_export_merges_the_adapter(complete, tmp_path):
    """W + (alpha / r) · B · A, under the names of the native checkpoint, and the head beside it."""
    from swift.pipelines import export_main

    with untouched_process():
        export_main(
            ["--external_plugins", str(PLUGIN), "--adapters", str(complete.last), "--merge_lora", "true",
             "--output_dir", str(tmp_path / "merged"), "--device_map", "cpu"]
        )  # fmt: skip
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    base = load_file(complete.trainer.model.model_dir + "/model.safetensors")
    adapter = load_file(complete.last / "adapter_model.safetensors")
    config = json.loads((complete.last / "adapter_config.json").read_text())
    name = "model.layers.1.mlp.down_proj"
    a, b = (adapter[f"base_model.model.{name}.lora_{matrix}.weight"].double() for matrix in "AB")
    expected = base[f"thinker.{name}.weight"].double() + config["lora_alpha"] / config["r"] * b @ a
    torch.testing.assert_close(merged[f"thinker.{name}.weight"].double(), expected, rtol=1e-5, atol=1e-7)
    head = load_file(complete.last / "turn_head.safetensors")
    assert torch.equal(merged["turn_head.classifier.weight"], head["classifier.weight"])


def test_infer_and_deploy_end_in_one_clear_line(complete):
    from swift.infer_engine import InferRequest, RequestConfig
    from swift.pipelines.infer import SwiftInfer

    with untouched_process():
        infer = SwiftInfer(["--external_plugins", str(PLUGIN), "--adapters", str(complete.last), "--device_map", "cpu"])
        request = InferRequest(messages=[{"role": "user", "content": "who speaks next?"}])
        with pytest.raises(InputError, match="writes no text; use swift-turn predict"):
            infer.infer([request], RequestConfig(max_tokens=1))


def test_weights_of_the_towers_are_never_read(tiny_checkpoint, tmp_path):
    """A tower weight of 4 GiB, a hole in a sparse file, costs no memory."""
    folder = tmp_path / "large"
    shutil.copytree(tiny_checkpoint, folder)
    weights = folder / "model.safetensors"
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header, data = json.loads(file.read(length)), file.read()
    size = 4 * 2**30
    large = {"dtype": "F32", "shape": [size // 4], "data_offsets": [len(data), len(data) + size]}
    text = json.dumps({**header, "thinker.audio_tower.layers.9.large": large}).encode()
    with weights.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
        file.truncate(8 + len(text) + len(data) + size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = TurnPredictor.load(folder, dtype=torch.float32)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < size / 16
    small = TurnPredictor.load(tiny_checkpoint, dtype=torch.float32).state_dict()
    assert all(torch.equal(tensor, small[name]) for name, tensor in model.state_dict().items())
