"""How many anchors a second: the reference's way against ours, in one run on one device.

    python examples/benchmarks/training_speed.py --shape 3b --history_seconds 20 --tokens_per_grid 60
    python examples/benchmarks/training_speed.py --shape tiny --device cpu

The reference's way is one anchor a sequence, batch 1, adapters as PEFT makes them, causal SDPA. Ours is what
`swift sft` runs by default: the ten anchors of a block share one history, several blocks a batch, flex attention and
fused, compiled layers on a GPU. Both take a whole step: forward, backward, clipping, AdamW. Weights are random, built
from configuration; the embeddings come from a made-up cache on disk.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch.utils.data import DataLoader
from transformers import Qwen2_5OmniConfig

from swift_plugin.cache.manifest import Manifest, Shard
from swift_plugin.cache.pieces import audio_rows, row_count, video_rows
from swift_plugin.files import sha256
from swift_plugin.model.head import TurnHeadConfig
from swift_plugin.model.loss import LossConfig, loss_weight, multi_horizon_loss
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.stream.anchors import list_anchors, session_blocks
from swift_plugin.stream.layout import stream_layout
from swift_plugin.stream.spec import StreamSpec
from swift_plugin.task.collator import OpenStreamCollator

# hidden, layers, heads, key-value heads, intermediate: the published configurations of the Thinker's text model
SHAPES = {
    "3b": (2048, 36, 16, 2, 11008),
    "7b": (3584, 28, 28, 4, 18944),
    "tiny": (64, 4, 4, 2, 256),
}
PREFIX_TEXT, CLOSURE_TEXT = 12, 8
TAILS = tuple(range(1, 11))


def text_config(shape: str):
    hidden, layers, heads, kv_heads, intermediate = SHAPES[shape]
    config = Qwen2_5OmniConfig().thinker_config.text_config
    for name, value in {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "layer_types": ["full_attention"] * layers,
    }.items():
        setattr(config, name, value)
    if hidden // heads != 128:
        config.rope_parameters["mrope_section"] = [2, 3, 3]
    return config


def make_model(config, *, dtype: torch.dtype, device: str, dropout: float, attention: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = copy.deepcopy(config)
    config._attn_implementation = "sdpa"
    with torch.device(device):
        torch.set_default_dtype(dtype)
        model = TurnPredictor(config)
        torch.set_default_dtype(torch.float32)
    model.config._attn_implementation = model.model.config._attn_implementation = attention
    model.attach_head(TurnHeadConfig(hidden_size=config.hidden_size, dropout=0.0))
    model.requires_grad_(False)
    tuned = get_peft_model(
        model,
        LoraConfig(r=8, lora_alpha=16, lora_dropout=dropout, target_modules=r"model\.layers\.\d+\..*_proj"),
    )
    torch.manual_seed(1)
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:  # PEFT starts with zeros, where the gradient of A would be nothing to compare
            torch.nn.init.normal_(parameter, std=0.01)
    model.turn_head.requires_grad_(True)
    return tuned.to(device).train()


def write_cache(folder: Path, *, blocks: int, hidden: int, spec: StreamSpec, grid: tuple[int, int], dtype) -> Path:
    """A cache of random embeddings."""
    generator = torch.Generator().manual_seed(2)
    steps = session_blocks([(0.0, blocks * 2.0)])

    def random(rows: int) -> torch.Tensor:
        return (torch.randn(rows, hidden, generator=generator) * 0.05).to(dtype)

    special = 1 if spec.video_fps is None else 2  # tokens that open and close the stream
    text = {"prefix": random(PREFIX_TEXT + special), "closure": random(CLOSURE_TEXT + special)}
    files = {"text.safetensors": ([], text)}
    for start in range(0, blocks, 32):
        members = list(range(start, min(start + 32, blocks)))
        tensors = {"audio": random(len(members) * row_count(audio_rows(10)))}
        if spec.video_fps is not None:
            tensors["video"] = random(len(members) * row_count(video_rows(spec, 10, grid[0] * grid[1])))
        files[f"shard-{start // 32:05d}.safetensors"] = (members, tensors)
    shards = []
    for name, (members, tensors) in files.items():
        path = folder / name
        save_file(tensors, path)
        shards.append(Shard(file=name, blocks=members, bytes=path.stat().st_size, sha256=sha256(path)))
    Manifest(
        model_id="random", weights_fingerprint="", dtype=str(dtype).removeprefix("torch."),
        memory_seconds=spec.memory_seconds, video_fps=spec.video_fps, video_min_pixels=1, video_max_pixels=1,
        cap_pixels_per_frame=False, hidden_size=hidden, grid_height=grid[0], grid_width=grid[1], system="",
        question="", prefix_ids=[0] * PREFIX_TEXT, closure_ids=[0] * CLOSURE_TEXT, target_path="targets.npy",
        target_steps=blocks * 10 + 10, label_rule=None, media={"sources": []}, cached_spans=[[0.0, blocks * 2.0]],
        cached_end_seconds=blocks * 2.0, library_versions={}, shards=shards,
        anchors=list_anchors(steps, target_steps=blocks * 10 + 10),
    ).save(folder)  # fmt: skip
    return folder / "turn_manifest.json"


def make_rows(manifest: Path, blocks: list[int], tails: tuple[int, ...] = TAILS) -> list[dict]:
    random = np.random.default_rng(3)
    return [
        {
            "manifest": str(manifest),
            "block_index": block,
            "tails": list(tails),
            "targets": np.eye(3)[random.integers(0, 3, (len(tails), 11))].tolist(),
        }
        for block in blocks
    ]


def to_device(batch: dict, device: str) -> dict:
    return {n: v.to(device, non_blocking=True) if torch.is_tensor(v) else v for n, v in batch.items()}


def loss_of(model, batch: dict) -> torch.Tensor:
    inputs = {name: value for name, value in batch.items() if name not in ("labels", "present")}
    targets = batch["labels"][batch["present"]][:, 1:]
    config = LossConfig()
    return multi_horizon_loss(model(**inputs).logits, targets, config) / loss_weight(targets, config)


class Step:
    """One whole training step."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=self.parameters[0].is_cuda)

    def __call__(self, batch: dict) -> None:
        loss_of(self.model, batch).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def seconds_per_step(step: Step, batches: list[dict], *, steps: int, warmup: int) -> float:
    times = []
    for number in range(warmup + steps):
        batch = batches[number % len(batches)]
        _synchronize()
        started = time.perf_counter()
        step(batch)
        _synchronize()
        if number >= warmup:
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def matrix_rate(dtype: torch.dtype) -> float:
    """TFLOP/s of a large product on this device."""
    size = 8192 if torch.cuda.is_available() else 1024
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    _synchronize()
    started = time.perf_counter()
    for _ in range(10):
        a @ b
    _synchronize()
    return 10 * 2 * size**3 / (time.perf_counter() - started) / 1e12


def step_flops(config, layout) -> float:
    """Products of one shared block, forward and the backward pass to the inputs; frozen weights have no gradient."""
    hidden, layers = config.hidden_size, config.num_hidden_layers
    heads, kv_heads, intermediate = config.num_attention_heads, config.num_key_value_heads, config.intermediate_size
    head_dim = hidden // heads
    weights = hidden * head_dim * (2 * heads + 2 * kv_heads) + 3 * hidden * intermediate
    lengths = [int((layout.branch == branch).sum()) for branch in range(int(layout.branch.max()) + 1)]
    trunk, branches = lengths[0], lengths[1:]
    pairs = trunk * (trunk + 1) / 2 + sum(n * trunk + n * (n + 1) / 2 for n in branches)
    return layers * (2 * 2 * weights * len(layout) + 3.5 * 4 * pairs * heads * head_dim)


def compare(config, manifest: Path, args, collate) -> None:
    """Losses and adapter gradients of both ways, each against one anchor a sequence in float32."""
    rows = make_rows(manifest, [args.history_seconds // 2])
    results = {}
    for name, dtype, shared in (("float32", torch.float32, False), ("reference", args.dtype, False), ("ours", args.dtype, True)):
        attention = args.attention if shared else "sdpa"
        model = make_model(config, dtype=dtype, device=args.device, dropout=0.0, attention=attention)
        if shared and args.fused:
            model.get_base_model().fuse_layers(compile=args.device == "cuda")
        total = 0.0
        if shared:
            loss = loss_of(model, to_device(collate(rows), args.device))
            loss.backward()
            total = loss.item()
        else:
            for anchor, tail in enumerate(TAILS):
                row = {**rows[0], "tails": [tail], "targets": rows[0]["targets"][anchor : anchor + 1]}
                loss = loss_of(model, to_device(OpenStreamCollator(shared=False)([row]), args.device)) / len(TAILS)
                loss.backward()
                total += loss.item()
        gradient = torch.cat([p.grad.flatten().double().cpu() for p in model.parameters() if p.grad is not None])
        results[name] = (total, gradient)
        del model
    loss, gradient = results["float32"]
    for name in ("reference", "ours"):
        difference = (results[name][1] - gradient).norm() / gradient.norm()
        print(
            f"  {name:9s} in {str(args.dtype).removeprefix('torch.')}: loss {results[name][0]:.6f} "
            f"(float32 {loss:.6f}), adapter gradients off by {difference:.2e}"
        )


def whole_path(step: Step, manifest: Path, blocks: list[int], args, collate) -> float:
    """Anchors a second with sequences rebuilt from the cache by worker processes."""
    rows = make_rows(manifest, [blocks[n % len(blocks)] for n in range((args.steps + 3) * args.blocks_per_batch)])
    loader = DataLoader(
        rows, batch_size=args.blocks_per_batch, collate_fn=collate, num_workers=args.num_workers,
        pin_memory=args.device == "cuda", prefetch_factor=4 if args.num_workers else None,
    )  # fmt: skip
    started, count = 0.0, 0
    for number, batch in enumerate(loader):
        if number == 3:
            _synchronize()
            started = time.perf_counter()
        step(to_device(batch, args.device))
        count += number >= 3
    _synchronize()
    return count * args.blocks_per_batch * len(TAILS) / (time.perf_counter() - started)


def run(args: argparse.Namespace) -> None:
    config = text_config(args.shape)
    video = args.tokens_per_grid > 0
    spec = StreamSpec(memory_seconds=args.history_seconds, video_fps=2.0 if video else None)
    grid = (1, args.tokens_per_grid) if video else (0, 0)
    history = args.history_seconds // 2
    collate = OpenStreamCollator(shared=True, packed=args.attention == "flex_attention")
    with tempfile.TemporaryDirectory() as folder:
        blocks = history + 16
        manifest = write_cache(
            Path(folder), blocks=blocks, hidden=config.hidden_size, spec=spec, grid=grid, dtype=args.dtype
        )
        full = list(range(history, blocks))
        layout = stream_layout(Manifest.load(manifest).shape, history=history, tails=TAILS)
        print(
            f"{args.shape}: {args.history_seconds} s of history, {50 + 2 * args.tokens_per_grid} tokens a block, "
            f"{len(layout)} tokens for {len(TAILS)} anchors, {args.blocks_per_batch} blocks a batch", flush=True,
        )  # fmt: skip
        if args.compare:
            compare(config, manifest, args, collate)

        model = make_model(config, dtype=args.dtype, device=args.device, dropout=0.05, attention="sdpa")
        singles = [
            to_device(OpenStreamCollator(shared=False)(make_rows(manifest, [full[n]], (tail,))), args.device)
            for n, tail in enumerate(TAILS)
        ]
        reference = 1 / seconds_per_step(Step(model), singles, steps=2 * args.steps, warmup=5)
        del model, singles
        _free()

        model = make_model(config, dtype=args.dtype, device=args.device, dropout=0.05, attention=args.attention)
        if args.fused:
            reason = model.get_base_model().fuse_layers(compile=args.device == "cuda")
            assert reason is None, reason
        batches = [
            to_device(collate(make_rows(manifest, full[n : n + args.blocks_per_batch])), args.device) for n in range(3)
        ]
        step = Step(model)
        if args.profile:
            profile(step, batches[0], args.profile)
        seconds = seconds_per_step(step, batches, steps=args.steps, warmup=3)
        ours = args.blocks_per_batch * len(TAILS) / seconds
        peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else float("nan")
        path = whole_path(step, manifest, full, args, collate)
        rate = args.blocks_per_batch * step_flops(config, layout) / seconds / 1e12
    limit = matrix_rate(args.dtype)
    print(
        f"  reference {reference:.2f} anchors/s; ours {ours:.1f} anchors/s, ratio {ours / reference:.1f}; "
        f"from cache to step {path:.1f} anchors/s ({path / ours:.0%}); {rate:.0f} TFLOP/s of {limit:.0f} measured "
        f"({rate / limit:.0%}); peak {peak:.0f} GiB", flush=True,
    )  # fmt: skip


def profile(step: Step, batch: dict, rows: int) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    for _ in range(3):
        step(batch)
    _synchronize()
    with torch_profile(activities=[ProfilerActivity.CUDA]) as profiled:
        step(batch)
        _synchronize()
    events = sorted(profiled.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    for event in events[:rows]:
        print(f"  {event.self_device_time_total / total:6.1%} {event.count:5d} x {event.key[:100]}")


def _free() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="3b")
    parser.add_argument("--history_seconds", type=int, default=20)
    parser.add_argument("--tokens_per_grid", type=int, default=60, help="two grids a block; 0 is sound alone")
    parser.add_argument("--blocks_per_batch", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=8, help="timed steps of ours; twice as many of the reference's")
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--no_fused", dest="fused", action="store_false", help="PEFT's own layers")
    parser.add_argument("--no_compare", dest="compare", action="store_false", help="leave out the comparison of gradients")
    parser.add_argument("--profile", type=int, default=0, help="print that many of the largest kernels of our step")
    args = parser.parse_args()
    gpu = args.device == "cuda"
    args.dtype = torch.bfloat16 if gpu else torch.float32
    args.attention = "flex_attention" if gpu else "sdpa"
    args.fused = args.fused and gpu
    run(args)


if __name__ == "__main__":
    main()
