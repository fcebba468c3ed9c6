"""`swift-turn cache`: run the frozen towers over a session once and keep what they say."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

SUMMARY = "run the frozen towers over one session and cache their embeddings"
EXAMPLE = (
    "swift-turn cache --model Qwen/Qwen2.5-Omni-3B --film session.mp4 --targets targets.npy \\\n"
    "      --output caches/session --torch_dtype bfloat16 --device cuda"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from swift_plugin.cache.conversation import DEFAULT_QUESTION, DEFAULT_SYSTEM

    parser.add_argument("--model", required=True, help="folder or hub name of a Qwen2.5-Omni checkpoint")
    parser.add_argument("--film", type=Path, help="film file; its own sound is used unless --audio is given")
    parser.add_argument("--audio", type=Path, help="sound file")
    parser.add_argument("--easycom_session", type=Path, help="folder of an EasyCom session instead of --film/--audio")
    parser.add_argument("--channel", default="mix", help='channel of the sound, from 0, or "mix" (default: %(default)s)')
    parser.add_argument("--silence", action="store_true", help="take a film without a sound track as silent")
    parser.add_argument("--start", type=float, default=0.0, help="second of the session to begin at (default: %(default)s)")
    parser.add_argument("--end", type=float, help="second of the session to stop at; default: its end")
    parser.add_argument("--targets", type=Path, required=True, help="targets.npy that `swift-turn targets` wrote")
    parser.add_argument("--output", type=Path, required=True, help="folder of the cache")
    parser.add_argument("--memory_seconds", type=float, default=20.0, help="longest history (default: %(default)s)")
    parser.add_argument(
        "--video_fps", type=float, default=2.0, help="frames a second; 0 caches sound only (default: %(default)s)"
    )
    parser.add_argument("--video_min_pixels", type=int, default=16 * 28 * 28, help="default: %(default)s")
    parser.add_argument("--video_max_pixels", type=int, default=128 * 28 * 28, help="default: %(default)s")
    parser.add_argument("--system", default=DEFAULT_SYSTEM, help="words of the system turn")
    parser.add_argument("--question", default=DEFAULT_QUESTION, help="words behind the stream")
    parser.add_argument("--torch_dtype", choices=("float32", "bfloat16", "float16"), help="default: bfloat16 on a GPU, float32 on a CPU")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, …; default: cuda where there is one")
    parser.add_argument("--decoder", default="pyav", help="film decoder (default: %(default)s)")
    parser.add_argument("--audio_feature_device", default="cpu", help="where the log-mel is computed (default: %(default)s)")
    parser.add_argument(
        "--audio_right_padding_samples",
        type=int,
        default=480,
        help="zeros behind each piece of sound; -1 pads to the native 300 s, with the same result (default: %(default)s)",
    )
    parser.add_argument("--batch_blocks", type=int, default=8, help="blocks through the towers at once (default: %(default)s)")
    parser.add_argument("--num_workers", type=int, default=4, help="threads for log-mels and patches (default: %(default)s)")
    parser.add_argument(
        "--no_tails", action="store_true", help="cache histories alone, a third of the size; train with turn_online_tail"
    )
    parser.add_argument("--use_hf", action="store_true", help="fetch the model from Hugging Face instead of ModelScope")
    parser.add_argument("--overwrite", action="store_true", help="replace a cache that is there")


def run(args: argparse.Namespace) -> None:
    import torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from swift_plugin.cache.builder import CacheContract, build_cache, remove_cache
    from swift_plugin.cache.conversation import tokenize_conversation
    from swift_plugin.cache.fingerprint import weights_fingerprint
    from swift_plugin.cache.manifest import MANIFEST_NAME
    from swift_plugin.cache.model_folder import find_model
    from swift_plugin.cache.towers import PieceEncoder
    from swift_plugin.errors import InputError
    from swift_plugin.files import refuse_existing
    from swift_plugin.labels.store import load_targets
    from swift_plugin.stream.anchors import clip_spans
    from swift_plugin.stream.spec import StreamSpec

    spec = StreamSpec(memory_seconds=args.memory_seconds, video_fps=args.video_fps or None)
    refuse_existing(args.output / MANIFEST_NAME, overwrite=args.overwrite)
    targets = load_targets(args.targets)
    model_dir = find_model(args.model, use_hf=args.use_hf)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = args.torch_dtype or ("float32" if device == "cpu" else "bfloat16")
    with _session(args, spec) as session:
        if spec.video_fps is not None and not session.has_film:
            raise InputError(f"{session.sources[0]}: has no picture; add --video_fps 0 to cache sound only")
        spans = clip_spans(session.spans, start=args.start, end=args.end)
        if not spans:
            raise InputError(f"--start {args.start} --end {args.end}: {session.sources[0]} has nothing there")
        if args.overwrite and args.output.is_dir():
            remove_cache(args.output)
        encoder = PieceEncoder(
            model_dir,
            video_min_pixels=args.video_min_pixels,
            video_max_pixels=args.video_max_pixels,
            dtype=getattr(torch, dtype),
            device=device,
            audio_feature_device=args.audio_feature_device,
            audio_right_padding_samples=None if args.audio_right_padding_samples < 0 else args.audio_right_padding_samples,
        )
        contract = CacheContract(
            model_id=args.model if not Path(args.model).is_dir() else Path(args.model).resolve().name,
            weights_fingerprint=weights_fingerprint(model_dir),
            spec=spec,
            video_min_pixels=args.video_min_pixels,
            video_max_pixels=args.video_max_pixels,
            system=args.system,
            question=args.question,
            tails=not args.no_tails,
            target_path=os.path.relpath(args.targets.resolve(), args.output.resolve()),
            target_steps=len(targets.targets),
            label_rule=targets.sidecar,
        )
        conversation = tokenize_conversation(
            encoder.features.processor, system=args.system, question=args.question, has_video=spec.video_fps is not None
        )
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns) as progress:
            task = progress.add_task("blocks of 2 s", total=None)
            manifest = build_cache(
                args.output,
                session=session,
                encoder=encoder,
                conversation=conversation,
                contract=contract,
                spans=spans,
                batch_blocks=args.batch_blocks,
                on_progress=lambda done, total: progress.update(task, completed=done, total=total),
            )
    usable = sum(anchor.has_future_target for anchor in manifest.anchors)
    size = sum(shard.bytes for shard in manifest.shards)
    print(f"{args.output / MANIFEST_NAME}: {usable} anchors with a future, {size / 2**20:.1f} MiB")


def _session(args: argparse.Namespace, spec):
    from swift_plugin.errors import InputError
    from swift_plugin.media.session import open_session

    channel = int(args.channel) if args.channel.isdigit() else args.channel
    if args.easycom_session is not None:
        if args.film or args.audio:
            raise InputError("--easycom_session names the film and the sound by itself; drop --film and --audio")
        from swift_plugin.media.easycom import open_easycom_session

        return open_easycom_session(args.easycom_session, channel=channel, decoder=args.decoder)
    if args.film is None and args.audio is None:
        raise InputError("no media given; add --film, --audio or --easycom_session")
    return open_session(
        film=args.film, audio=args.audio, channel=channel, silence=args.silence, decoder=args.decoder
    )
