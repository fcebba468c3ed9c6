#!/usr/bin/env bash
# LoRA on eight GPUs with DeepSpeed ZeRO-3: each holds an eighth of the frozen weights too and asks for the rest, layer by
# layer. Slower than ZeRO-2; take it where the model does not fit one GPU beside its activations.
set -euo pipefail

MODEL=${MODEL:-Qwen/Qwen2.5-Omni-7B}                              # a name or a folder
TRAIN=${TRAIN:-caches/session_1 caches/session_2 caches/session_3} # what swift-turn cache wrote; several, by spaces
OUTPUT=${OUTPUT:-output/zero3}

export NPROC_PER_NODE=${NPROC_PER_NODE:-8} # as ms-swift reads it; NNODES, NODE_RANK, MASTER_ADDR for several machines

# A batch of 4 blocks on 8 GPUs: 320 anchors an update. To go on after a stop, add
# --resume_from_checkpoint output/zero3/v0-…/checkpoint-200, with the same number of GPUs.
exec swift-turn sft \
    --model "$MODEL" --model_type qwen2_5_omni_turn --tuner_type turn \
    --dataset $(printf '%s/turn_manifest.json ' $TRAIN) \
    --deepspeed zero3 --torch_dtype bfloat16 \
    --lora_rank 8 --lora_alpha 16 --lora_dropout 0.05 --target_modules all-linear \
    --learning_rate 1e-4 --model_kwargs '{"turn_head_learning_rate": 5e-4}' \
    --warmup_ratio 0.05 --lr_scheduler_type cosine --weight_decay 0.01 --max_grad_norm 1 \
    --num_train_epochs 1 --per_device_train_batch_size 4 --gradient_accumulation_steps 1 \
    --gradient_checkpointing false --dataloader_num_workers 4 \
    --save_steps 200 --save_total_limit 3 --logging_steps 5 --output_dir "$OUTPUT" "$@"
