#!/usr/bin/env bash
# From a real conversation to a trained turn predictor, on two CPU cores, in a few minutes.
#
#   bash examples/quickstart.sh [OUTPUT]
#
# The model is a small Qwen2.5-Omni with random weights, so what it learns here is only that it can learn.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
OUTPUT=${1:-quickstart_output}
EXAMPLES=$ROOT/examples
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} TRANSFORMERS_VERBOSITY=error  # a model this small gains nothing from more
mkdir -p "$OUTPUT"
cd "$OUTPUT"

echo "1. a conversation of 30 s with its turns, and a film drawn for it"
python3 "$EXAMPLES/fetch_conversation.py" --output .
[ -e film.mp4 ] || python3 "$EXAMPLES/draw_film.py" --audio sample.wav --turns sample.rttm --output film.mp4

echo "2. who speaks in each step of 0.2 s; speaker90 wears the camera"
swift-turn targets --input sample.rttm --self speaker90 --duration 30 --output targets.npy --overwrite

echo "3. a small random Qwen2.5-Omni"
python3 "$EXAMPLES/make_tiny_checkpoint.py" --output tiny_omni --overwrite

echo "4. what its frozen towers say: two parts to train on, one to validate on, without the silent beginning"
for part in "talk_1 6 14" "validation 14 22" "talk_2 22 30"; do
    set -- $part
    swift-turn cache --model tiny_omni --film film.mp4 --targets targets.npy --output "cache/$1" --start "$2" --end "$3" \
        --memory_seconds 2 --video_min_pixels 3136 --video_max_pixels 12544 --overwrite
done

echo "5. training, by the unchanged swift sft: 600 anchors in ten epochs"
swift sft \
    --external_plugins "$ROOT/swift_plugin/plugin.py" \
    --model tiny_omni --model_type qwen2_5_omni_turn --tuner_type turn \
    --dataset cache/talk_1/turn_manifest.json cache/talk_2/turn_manifest.json \
    --val_dataset cache/validation/turn_manifest.json \
    --torch_dtype float32 --use_cpu true --check_model false \
    --lora_rank 8 --lora_alpha 16 --learning_rate 1e-3 --model_kwargs '{"turn_head_learning_rate": 3e-3}' \
    --num_train_epochs 10 --per_device_train_batch_size 1 --gradient_accumulation_steps 1 --warmup_steps 5 \
    --eval_on_start true --eval_strategy epoch --save_strategy epoch --save_total_limit 2 --logging_steps 8 \
    --gradient_checkpointing false --dataloader_num_workers 0 --report_to none --output_dir runs --create_checkpoint_symlink true
RUN=$(ls -td runs/v*/ | head -1)

echo "6. predictions of the best checkpoint, measured and drawn"
swift-turn predict --checkpoint "${RUN}best" --manifest cache/talk_1 cache/validation cache/talk_2 --output predictions.npz --overwrite
swift-turn evaluate predictions.npz --output metrics.json --overwrite
python3 "$EXAMPLES/draw_predictions.py" --predictions predictions.npz --output predictions.png
python3 - "$RUN/train_summary.json" <<'PYTHON'
import json, sys

evaluations = [entry for entry in json.load(open(sys.argv[1]))["history"] if "eval_loss" in entry]
for name in ("loss", "mAP"):
    print(f"validation {name}: {evaluations[0][f'eval_{name}']:.3f} before training, {evaluations[-1][f'eval_{name}']:.3f} after")
PYTHON
echo "truth and prediction: $OUTPUT/predictions.png"
