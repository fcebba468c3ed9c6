"""How fast a cache is built, part by part and as a whole, in one run on one device; and how many bytes an hour takes.

    python examples/benchmarks/cache_speed.py --shape 3b --minutes 60
    python examples/benchmarks/cache_speed.py --shape tiny --device cpu --minutes 2

The film is made up, 320 x 180 with sound, 20 frames a second. The towers have random weights of the published shapes and
are loaded from a checkpoint folder by the code that loads real ones. Each part is timed alone over the first blocks;
then the whole cache is built, where the parts run beside each other.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import torch
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the other examples

from make_tiny_checkpoint import build_config, build_processor, build_tokenizer, make_tiny_checkpoint
from safetensors.torch import save_file

from swift_plugin.cache.builder import CacheContract, build_cache, cache_bytes
from swift_plugin.cache.conversation import DEFAULT_QUESTION, DEFAULT_SYSTEM, tokenize_conversation
from swift_plugin.cache.encode import PieceRequest, encode_pieces, piece_inputs, read_pieces
from swift_plugin.cache.fingerprint import weights_fingerprint
from swift_plugin.cache.towers import PieceEncoder, ThinkerTowers
from swift_plugin.files import sha256
from swift_plugin.media.session import Session, open_session
from swift_plugin.stream.anchors import session_blocks
from swift_plugin.stream.layout import stream_layout
from swift_plugin.stream.spec import BLOCK_SECONDS, STEPS_PER_BLOCK, StreamSpec

HIDDEN = {"3b": 2048, "7b": 3584}
MIN_PIXELS, MAX_PIXELS = 16 * 28 * 28, 128 * 28 * 28


def make_film(path: Path, *, seconds: float, size: tuple[int, int] = (320, 180), rate: int = 20) -> Path:
    """A moving pattern with a tone, H.264 and AAC."""
    width, height = size
    pattern = np.random.default_rng(0).integers(0, 255, (height // 4, width // 4, 3), np.uint8)
    pattern = pattern.repeat(4, axis=0).repeat(4, axis=1)  # [height, width, 3]
    time_of = np.arange(16_000 * 10) / 16_000
    tone = (0.2 * np.sin(2 * np.pi * 220 * time_of * (1 + time_of.astype(int) % 3))).astype(np.float32)[None]
    with av.open(str(path), "w") as film:
        picture = film.add_stream("h264", rate=rate, options={"preset": "ultrafast"})
        picture.width, picture.height, picture.pix_fmt = width, height, "yuv420p"
        sound = film.add_stream("aac", rate=16_000, layout="mono")
        for number in range(round(seconds * rate)):
            frame = av.VideoFrame.from_ndarray(np.roll(pattern, 3 * number, axis=1), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, rate)
            film.mux(picture.encode(frame))
        for start in range(0, round(seconds * 16_000), 1_024):
            samples = np.take(tone, range(start, start + 1_024), axis=1, mode="wrap")
            frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16_000, start
            film.mux(sound.encode(frame))
        film.mux(picture.encode())
        film.mux(sound.encode())
    return path


def make_towers(folder: Path, shape: str, *, device: str) -> Path:
    """A checkpoint folder that holds the towers of a published shape, random, and the small tokenizer."""
    if shape == "tiny":
        return make_tiny_checkpoint(folder)
    folder.mkdir()
    tokenizer = build_tokenizer()
    config = build_config(tokenizer, hidden_size=HIDDEN[shape], num_hidden_layers=1)
    thinker = config.thinker_config
    tower_sizes = {
        "audio_config": dict(d_model=1280, encoder_layers=32, encoder_attention_heads=20, encoder_ffn_dim=5120),
        "vision_config": dict(
            depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16, fullatt_block_indexes=[7, 15, 23, 31]
        ),
    }
    for part, sizes in tower_sizes.items():
        for name, value in sizes.items():
            setattr(getattr(thinker, part), name, value)
    torch.manual_seed(0)
    with torch.device(device):
        towers = ThinkerTowers(thinker).to(torch.bfloat16)
    config.save_pretrained(folder)
    build_processor(tokenizer).save_pretrained(folder)
    save_file({f"thinker.{name}": tensor.contiguous() for name, tensor in towers.state_dict().items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def seconds_a_block(session: Session, encoder: PieceEncoder, spec: StreamSpec, folder: Path, *, batches: int, size: int) -> dict[str, float]:
    """Seconds of each part for one block of 2 s, one after another."""
    totals = dict.fromkeys(("read and decode", "log-mels and patches", "towers", "write and checksum"), 0.0)
    for number in range(batches + 1):  # the first is a warm-up
        requests = [PieceRequest.cached(b, STEPS_PER_BLOCK, spec, tails=True) for b in range(number * size, (number + 1) * size)]
        times = [time.perf_counter()]
        raw = read_pieces(session, spec, requests)
        times.append(time.perf_counter())
        inputs = piece_inputs(encoder.features, raw)
        times.append(time.perf_counter())
        pieces = encode_pieces(encoder, inputs, requests)
        rows = torch.cat([row for own in pieces for row in (*own.audio.values(), *own.video.values())]).cpu()
        times.append(time.perf_counter())
        save_file({"rows": rows}, folder / "part.safetensors")
        sha256(folder / "part.safetensors")
        times.append(time.perf_counter())
        if number:
            for part, start, end in zip(totals, times, times[1:]):
                totals[part] += (end - start) / (batches * size)
    return totals


def bytes_an_hour(plan: dict, shape) -> dict[str, float]:
    """Bytes of an hour: as cached, without tails, and if each of the ten tails kept all of its own pieces."""
    blocks = session_blocks([(0.0, 3600.0)])
    tokens = sum(part.length for part in stream_layout(shape, history=0, tails=tuple(range(1, 11))).parts if part.kind in ("video", "audio"))
    row = plan["hidden_size"] * getattr(torch, plan["dtype"]).itemsize
    return {
        "as cached": cache_bytes({**plan, "tails": True}, blocks),
        "without tails": cache_bytes({**plan, "tails": False}, blocks),
        "nothing shared": len(blocks.steps) * tokens * row,
    }


def run(args: argparse.Namespace, folder: Path) -> None:
    spec = StreamSpec(memory_seconds=20, video_fps=2.0)
    film = make_film(folder / "film.mp4", seconds=60 * args.minutes)
    model_dir = make_towers(folder / "towers", args.shape, device=args.device)
    dtype = torch.bfloat16 if args.device.startswith("cuda") else torch.float32
    encoder = PieceEncoder(
        model_dir, video_min_pixels=MIN_PIXELS, video_max_pixels=MAX_PIXELS, dtype=dtype, device=args.device,
        audio_feature_device=args.audio_feature_device,
    )  # fmt: skip
    print(f"{args.shape}, {args.device}, {str(dtype).removeprefix('torch.')}, attention of the towers: {encoder.towers.visual.config._attn_implementation}", flush=True)
    with open_session(film=film) as session:
        parts = seconds_a_block(session, encoder, spec, folder, batches=args.batches, size=args.batch_blocks)
        for part, seconds in parts.items():
            print(f"  {part:22s} {1000 * seconds:7.2f} ms a block, alone {BLOCK_SECONDS / seconds:7.1f} times real time", flush=True)
    contract = CacheContract(
        model_id="random", weights_fingerprint=weights_fingerprint(model_dir), spec=spec, video_min_pixels=MIN_PIXELS,
        video_max_pixels=MAX_PIXELS, system=DEFAULT_SYSTEM, question=DEFAULT_QUESTION, tails=True,
        target_path="targets.npy", target_steps=10, label_rule=None,
    )  # fmt: skip
    conversation = tokenize_conversation(encoder.features.processor, system=DEFAULT_SYSTEM, question=DEFAULT_QUESTION, has_video=True)
    started = time.perf_counter()
    with open_session(film=film) as session:
        opened = time.perf_counter() - started
        manifest = build_cache(
            folder / "cache", session=session, encoder=encoder, conversation=conversation, contract=contract,
            batch_blocks=args.batch_blocks, num_workers=args.num_workers,
        )  # fmt: skip
    seconds = time.perf_counter() - started
    print(
        f"  the whole cache of {args.minutes:g} minutes in {seconds:.1f} s, {60 * args.minutes / seconds:.1f} times real time "
        f"({opened:.1f} s of it to open the film and resample its sound); {args.num_workers} threads for features"
    )
    print(f"  slowest part alone: {max(parts, key=parts.get)}; one after another they would take {BLOCK_SECONDS / sum(parts.values()):.1f} times real time")
    for name, size in bytes_an_hour(vars(manifest), manifest.shape).items():
        print(f"  one hour {name}: {size / 1e9:.2f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("3b", "7b", "tiny"), default="3b")
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the film (default: %(default)s)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--audio_feature_device", default="cpu")
    parser.add_argument("--batch_blocks", type=int, default=8, help="blocks through the towers together (default: %(default)s)")
    parser.add_argument("--num_workers", type=int, default=4, help="threads for log-mels and patches (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=4, help="batches that each part is timed over (default: %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(args, Path(folder))


if __name__ == "__main__":
    main()
