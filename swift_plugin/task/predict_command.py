"""`swift-turn predict`: probabilities of a trained checkpoint for every anchor of cached sessions."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "probabilities of a trained checkpoint for every anchor of cached sessions"
EXAMPLE = (
    "swift-turn predict --checkpoint output/v0/checkpoint-300 \\\n"
    "      --manifest caches/session_4/turn_manifest.json --output predictions.npz"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint folder that swift sft wrote")
    parser.add_argument("--manifest", type=Path, required=True, nargs="+", help="turn_manifest.json of one or more sessions")
    parser.add_argument("--output", type=Path, required=True, help="predictions, .npz or .parquet")
    parser.add_argument("--model", help="base checkpoint; default: the one in the checkpoint's args.json")
    parser.add_argument(
        "--temperature", type=Path, metavar="JSON", help="apply the temperatures that `evaluate --fit_temperature` wrote"
    )
    parser.add_argument("--batch_size", type=int, default=1, help="blocks of ten anchors a batch (default: %(default)s)")
    parser.add_argument("--num_workers", type=int, default=0, help="processes that rebuild sequences (default: %(default)s)")
    parser.add_argument("--torch_dtype", choices=("float32", "bfloat16", "float16"), help="default: that of the training")
    parser.add_argument("--attn_impl", choices=("sdpa", "flex_attention", "eager"), default="sdpa", help="default: %(default)s")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, …; default: cuda where there is one")
    parser.add_argument(
        "--online_tail", action="store_true", help="make the tails from the media, for a cache that was built without them"
    )
    parser.add_argument("--use_hf", action="store_true", help="fetch the model from Hugging Face instead of ModelScope")
    parser.add_argument("--overwrite", action="store_true", help="replace an output that is there")


def run(args: argparse.Namespace) -> None:
    import numpy as np
    import torch
    from rich.progress import track

    from swift_plugin.cache.fingerprint import check_weights
    from swift_plugin.cache.manifest import MANIFEST_NAME, Manifest, check_same_contract
    from swift_plugin.cache.model_folder import find_model
    from swift_plugin.config import TurnOptions
    from swift_plugin.errors import InputError
    from swift_plugin.evaluation.calibration import TemperatureScaling
    from swift_plugin.evaluation.prediction_writer import PredictionWriter
    from swift_plugin.files import refuse_existing
    from swift_plugin.task.online_tail import OnlineTail
    from swift_plugin.task.predict import (
        dtype_of_checkpoint,
        load_predictor,
        model_of_checkpoint,
        predict_session,
    )

    refuse_existing(args.output, overwrite=args.overwrite)
    calibration = None if args.temperature is None else TemperatureScaling.load(args.temperature)
    paths = [path / MANIFEST_NAME if path.is_dir() else path for path in args.manifest]
    manifests = {path: Manifest.load(path) for path in paths}
    check_same_contract(manifests)
    model_dir = find_model(args.model or model_of_checkpoint(args.checkpoint), use_hf=args.use_hf)
    check_weights(manifests, model_dir)
    without_tails = [path for path, manifest in manifests.items() if not manifest.tails]
    if without_tails and not args.online_tail:
        raise InputError(f"{without_tails[0]}: cached without tails; add --online_tail, or build it again with them")
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    online_tail = None
    if args.online_tail:
        resolved = {path.resolve(): manifest for path, manifest in manifests.items()}
        online_tail = OnlineTail(resolved, model_dir, TurnOptions(online_tail=True), device=torch.device(device))
    model = load_predictor(
        args.checkpoint,
        model_dir,
        dtype=getattr(torch, args.torch_dtype or dtype_of_checkpoint(args.checkpoint) or manifests[paths[0]].dtype),
        device=device,
        attn_impl=args.attn_impl,
    )
    names = [path.parent.name for path in paths]
    count = 0
    with PredictionWriter(args.output, session_names=names) as writer:
        for number, path in enumerate(paths):
            batches = predict_session(
                model, path, batch_size=args.batch_size, num_workers=args.num_workers, online_tail=online_tail
            )
            total = -(-len(manifests[path].blocks.steps) // args.batch_size)
            for batch in track(batches, total=total, description=names[number]):
                session = np.full(len(batch.target_index), number, dtype=np.int32)
                probabilities = batch.probabilities if calibration is None else calibration.apply(batch.probabilities)
                writer.add(probabilities, batch.target_index, session, batch.targets)
                count += len(batch.target_index)
    print(f"{args.output}: {count} anchors of {len(paths)} sessions")
