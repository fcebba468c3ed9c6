"""Which launch trains, resumes and predicts on this machine: DDP and DeepSpeed ZeRO 0 to 3, as a Markdown table.

    python3 examples/benchmarks/zero_matrix.py --model tiny_omni --manifest cache/turn_manifest.json --output matrix
    python3 examples/benchmarks/zero_matrix.py … --processes 2 --device cpu --torch_dtype float32

Each launch trains four steps and saves at the second and the fourth, goes on from the second to the fourth, and
predicts from the last checkpoint. "resume" shows how far the resumed parameters are from those of the whole run.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]
LAUNCHES = ("ddp", "zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")


def main() -> int:
    args = parse_args()
    args.output.mkdir(parents=True)
    rows, failed = [], False
    for launch in args.launches:
        for frozen in (False, True):
            folder = args.output / f"{launch}{'_frozen' if frozen else ''}"
            try:
                row = measure(args, launch, frozen=frozen, folder=folder)
            except RuntimeError as error:
                row, failed = {"train": f"no: {error}"}, True
            rows.append({"launch": launch, "learns": "head" if frozen else "LoRA + head", **row})
            print(json.dumps(rows[-1]), flush=True)
    table = as_markdown(rows)
    (args.output / "matrix.md").write_text(table)
    print(table)
    return int(failed)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder; examples/make_tiny_checkpoint.py makes a small one")
    parser.add_argument("--manifest", type=Path, required=True, help="turn_manifest.json of a session cached with it")
    parser.add_argument("--output", type=Path, required=True, help="folder for the runs and matrix.md; must not exist")
    parser.add_argument("--processes", type=int, default=1, help="GPUs, or processes of a CPU (default: %(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--torch_dtype", default="bfloat16", help="(default: %(default)s)")
    parser.add_argument("--launches", nargs="+", choices=LAUNCHES, default=LAUNCHES[:5])
    return parser.parse_args()


def measure(args: argparse.Namespace, launch: str, *, frozen: bool, folder: Path) -> dict[str, str]:
    """Train, resume and predict with one launch.

    Raises:
        RuntimeError: a command failed; holds its last line that names an error.
    """
    started = time.monotonic()
    train(args, launch, frozen=frozen, folder=folder / "whole")
    seconds = time.monotonic() - started
    train(args, launch, frozen=frozen, folder=folder / "resumed", resume=folder / "whole" / "checkpoint-2")
    whole, resumed = (parameters(folder / name / "checkpoint-4") for name in ("whole", "resumed"))
    difference = max((whole[name] - resumed[name]).abs().max().item() for name in whole)
    predict(args, folder / "whole" / "checkpoint-4", folder / "predictions.npz")
    engine = sum(file.stat().st_size for file in (folder / "whole" / "checkpoint-4").glob("global_step*/*"))
    summary = json.loads((folder / "whole" / "train_summary.json").read_text())
    return {
        "train": f"{seconds:.0f} s",
        "resume": f"within {difference:.1e}",
        "predict": "yes",
        "saved as": ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in whole.values()})),
        "DeepSpeed's part": f"{engine / 2**20:.1f} MiB",
        "peak": f"{max(summary['peak_cuda_allocated_gib']):.2f} GiB",
    }


def train(args: argparse.Namespace, launch: str, *, frozen: bool, folder: Path, resume: Path | None = None) -> None:
    words = [
        "--external_plugins", ROOT / "swift_plugin" / "plugin.py", "--model", args.model,
        "--model_type", "qwen2_5_omni_turn", "--tuner_type", "turn", "--dataset", args.manifest,
        "--torch_dtype", args.torch_dtype, "--check_model", "false", "--report_to", "none",
        "--model_kwargs", json.dumps({"turn_freeze_thinker": frozen}), "--learning_rate", "1e-3",
        "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "1", "--dataloader_num_workers", "0",
        "--max_steps", "4", "--save_steps", "2", "--logging_steps", "1", "--add_version", "false",
        "--output_dir", folder,
    ]  # fmt: skip
    words += ["--use_cpu", "true"] if args.device == "cpu" else []
    words += ["--deepspeed", launch] if launch != "ddp" else []
    words += ["--resume_from_checkpoint", resume] if resume else []
    run([sys.executable, "-m", "swift.cli.main", "sft", *words], NPROC_PER_NODE=str(args.processes), MASTER_PORT=free_port())


def predict(args: argparse.Namespace, checkpoint: Path, output: Path) -> None:
    words = ["--checkpoint", checkpoint, "--manifest", args.manifest, "--output", output, "--device", args.device]
    run([sys.executable, "-m", "swift_plugin", "predict", *words, "--torch_dtype", args.torch_dtype])


def run(command: list, **variables: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", **variables}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if "Error" in line and "ChildFailedError" not in line]
        raise RuntimeError(lines[-1] if lines else f"exit code {done.returncode}")


def parameters(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Adapter, where there is one, and head."""
    files = [*checkpoint.glob("adapter_model.safetensors"), checkpoint / "turn_head.safetensors"]
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def as_markdown(rows: list[dict[str, str]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([row.get(name, "") for name in columns] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
