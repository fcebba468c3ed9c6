#!/usr/bin/env bash
# LoRA on the Thinker's language model, and the head: one GPU, or a CPU where there is none.
set -euo pipefail

MODEL=${MODEL:-Qwen/Qwen2.5-Omni-7B}                              # a name or a folder
TRAIN=${TRAIN:-caches/session_1 caches/session_2 caches/session_3} # what swift-turn cache wrote; several, by spaces
OUTPUT=${OUTPUT:-output/lora}

# Validation sessions, apart from the training ones; the best checkpoint is chosen on them.
VALIDATION=${VALIDATION:-}
VALIDATION_OPTIONS=()
if [ -n "$VALIDATION" ]; then
    VALIDATION_OPTIONS=(--val_dataset $(printf '%s/turn_manifest.json ' $VALIDATION) --eval_on_start true --metric_for_best_model mAP)
fi

# A batch is counted in blocks of 2 s: up to ten anchors each, which share their history.
# learning_rate is that of the adapters, turn_head_learning_rate that of the head.
# Whatever follows the script's name replaces an option here: bash train_lora.sh --max_steps 100
exec swift-turn sft \
    --model "$MODEL" --model_type qwen2_5_omni_turn --tuner_type turn \
    --dataset $(printf '%s/turn_manifest.json ' $TRAIN) "${VALIDATION_OPTIONS[@]}" \
    --torch_dtype bfloat16 \
    --lora_rank 8 --lora_alpha 16 --lora_dropout 0.05 --target_modules all-linear \
    --learning_rate 2e-5 --model_kwargs '{"turn_head_learning_rate": 1e-4}' \
    --warmup_ratio 0.05 --lr_scheduler_type cosine --weight_decay 0.01 --max_grad_norm 1 \
    --num_train_epochs 1 --per_device_train_batch_size 4 --gradient_accumulation_steps 2 \
    --gradient_checkpointing false --dataloader_num_workers 4 \
    --save_steps 200 --eval_steps 200 --save_total_limit 3 --logging_steps 5 \
    --create_checkpoint_symlink true --output_dir "$OUTPUT" "$@"
