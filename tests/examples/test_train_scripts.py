"""Each training script and the YAML file, run as they are, on the small model and a CPU: a few steps, a checkpoint."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from task.helpers_run import make_small_cache

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ON_A_CPU = [
    "--use_cpu", "true", "--torch_dtype", "float32", "--check_model", "false", "--report_to", "none",
    "--dataloader_num_workers", "0", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "1",
    "--max_steps", "2", "--save_steps", "2", "--logging_steps", "1", "--add_version", "false",
]  # fmt: skip


@pytest.fixture(scope="module")
def two_sessions(tiny_checkpoint, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sessions")
    return [make_small_cache(folder / name, tiny_checkpoint, end=end, seed=end) for name, end in (("a", 15), ("b", 11))]


@pytest.fixture
def run(tiny_checkpoint, two_sessions, tmp_path):
    """Runs a command in an empty folder; gives the output folder and the summary of the run."""

    def call(*command: str, **variables: str) -> tuple[Path, dict]:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "MODEL": str(tiny_checkpoint),
            "TRAIN": " ".join(str(path.parent) for path in two_sessions),
            "OUTPUT": str(tmp_path / "out"),
            **variables,
        }
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return tmp_path / "out", json.loads((tmp_path / "out" / "train_summary.json").read_text())

    return call


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_lora(run, two_sessions):
    training, validation = two_sessions
    variables = {"TRAIN": str(training.parent), "VALIDATION": str(validation.parent)}
    output, summary = run("bash", str(EXAMPLES / "train_lora.sh"), *ON_A_CPU, "--eval_steps", "1", **variables)
    assert summary["variant"] == "thinker_lora" and summary["updates"] == 2
    assert summary["turn_options"]["head_learning_rate"] == 1e-4
    assert {"adapter_model.safetensors", "turn_head.safetensors"} <= {p.name for p in (output / "best").iterdir()}
    assert summary["initial_eval_loss"] is not None


def test_frozen(run):
    output, summary = run("bash", str(EXAMPLES / "train_frozen.sh"), *ON_A_CPU)
    assert summary["variant"] == "frozen_thinker"
    assert not list((output / "checkpoint-2").glob("adapter*"))
    config = json.loads((output / "checkpoint-2" / "turn_head.json").read_text())["head_config"]
    assert (config["num_input_layers"], config["learnable_layer_mixture"]) == (4, True)


@pytest.mark.parametrize("stage", [2, 3])
def test_eight_gpus_as_two_processes(run, stage):
    pytest.importorskip("deepspeed")
    script = str(EXAMPLES / f"train_8gpu_zero{stage}.sh")
    output, summary = run("bash", script, *ON_A_CPU, NPROC_PER_NODE="2", MASTER_PORT=free_port())
    assert summary["world_size"] == 2 and summary["updates"] == 2
    assert summary["arguments"]["deepspeed"]["zero_optimization"]["stage"] == stage
    assert list((output / "checkpoint-2").glob("global_step2/*"))
    assert (output / "checkpoint-2" / "adapter_model.safetensors").is_file()


def test_yaml(run, tiny_checkpoint, two_sessions, tmp_path):
    first, second = two_sessions
    own = ["--model", str(tiny_checkpoint), "--dataset", str(first), f"{second}#20", "--output_dir", str(tmp_path / "out")]
    output, summary = run("swift-turn", "sft", str(EXAMPLES / "train.yaml"), *own, *ON_A_CPU)
    assert summary["turn_options"]["head_learning_rate"] == 1e-4  # from its ENV part
    assert summary["arguments"]["learning_rate"] == 2e-5
    assert (output / "train.yaml").is_file()  # ms-swift keeps what ran beside the result
