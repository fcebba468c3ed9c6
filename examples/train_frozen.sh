#!/usr/bin/env bash
# The head alone, on a frozen Thinker: what can be read from the hidden state without teaching the model anything.
set -euo pipefail

MODEL=${MODEL:-Qwen/Qwen2.5-Omni-7B}                              # a name or a folder
TRAIN=${TRAIN:-caches/session_1 caches/session_2 caches/session_3} # what swift-turn cache wrote; several, by spaces
OUTPUT=${OUTPUT:-output/frozen}

# No gradient flows through the language model, so the batch can be larger. The head reads the last four layers.
# Whatever follows the script's name replaces an option here: bash train_frozen.sh --max_steps 100
exec swift-turn sft \
    --model "$MODEL" --model_type qwen2_5_omni_turn --tuner_type turn \
    --dataset $(printf '%s/turn_manifest.json ' $TRAIN) \
    --torch_dtype bfloat16 --learning_rate 1e-3 \
    --model_kwargs '{"turn_freeze_thinker": true, "turn_head_num_input_layers": 4, "turn_head_learnable_layer_mixture": true}' \
    --warmup_ratio 0.05 --lr_scheduler_type cosine --weight_decay 0.01 \
    --num_train_epochs 3 --per_device_train_batch_size 8 --gradient_accumulation_steps 1 \
    --dataloader_num_workers 4 --save_steps 200 --save_total_limit 3 --logging_steps 5 --output_dir "$OUTPUT" "$@"
