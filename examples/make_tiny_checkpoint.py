"""Makes a small Qwen2.5-Omni checkpoint with random weights, laid out as the published one.

For trying commands and for tests: it loads with the same classes, has the same files, names and special tokens,
and keeps every rule of shape (TMRoPE sections, grouped key-value heads, 2 s audio windows, vision windows of 112
pixels, 2 x 2 merging). It knows nothing, takes seconds to make and a few megabytes of disk. No network is used.

The talker is left out (`enable_audio_output=False`): the Thinker is all that turn prediction needs. `spk_dict.pt`, the
talker's voices, is there but empty, since `Qwen2_5OmniForConditionalGeneration.from_pretrained` insists on the file.

    python examples/make_tiny_checkpoint.py --output output/tiny_omni
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    Qwen2_5OmniConfig,
    Qwen2_5OmniForConditionalGeneration,
    Qwen2_5OmniProcessor,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    WhisperFeatureExtractor,
)

from swift_plugin.errors import InputError
from swift_plugin.files import refuse_existing

HEAD_DIM = 16
MROPE_SECTION = [2, 3, 3]  # the published [16, 24, 24] in the proportion of HEAD_DIM to 128
PUBLISHED_ARCHITECTURES = ["Qwen2_5OmniModel"]  # what the config.json of the published checkpoints says

# In the order of their ids in the published tokenizer, 151643 onwards.
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_bos|>",
    "<|vision_eos|>",
    "<|vision_pad|>",
    "<|IMAGE|>",
    "<|VIDEO|>",
)
# The attributes of the tokenizer that Qwen2_5OmniProcessor reads.
NAMED_TOKENS = {
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
CORPUS = (
    "system\nuser\nassistant\n",
    "You are Qwen, a virtual human developed by the Qwen Team, Alibaba Group, capable of perceiving auditory and "
    "visual inputs, as well as generating text and speech.",
    "You are a helpful assistant.",
    "Who will speak next: nobody, the wearer of the camera, or somebody else?",
)
CHAT_TEMPLATE = """\
{%- set marks = {
    "image": "<|vision_bos|><|IMAGE|><|vision_eos|>",
    "video": "<|vision_bos|><|VIDEO|><|vision_eos|>",
    "audio": "<|audio_bos|><|AUDIO|><|audio_eos|>",
} -%}
{%- if messages[0].role != "system" -%}
    {{- "<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n" -}}
{%- endif -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message.role + "\\n" -}}
    {%- if message.content is string -%}
        {{- message.content -}}
    {%- else -%}
        {%- for part in message.content -%}
            {{- part.text if part.type == "text" else marks[part.type] -}}
        {%- endfor -%}
    {%- endif -%}
    {{- "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>assistant\\n" -}}
{%- endif -%}
"""


def build_tokenizer() -> Qwen2Tokenizer:
    """A byte-level BPE tokenizer: all 256 bytes, the pieces of `CORPUS`, then the special tokens."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.NFC()
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=1,
        show_progress=False,
    )
    trained.train_from_iterator(CORPUS, trainer)
    bpe = json.loads(trained.to_str())["model"]
    vocab = bpe["vocab"]
    for token in SPECIAL_TOKENS:
        vocab[token] = len(vocab)  # before the tokenizer adds its named ones in an order of its own
    tokenizer = Qwen2Tokenizer(
        vocab=vocab,
        merges=[tuple(pair) for pair in bpe["merges"]],
        model_max_length=32768,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        **NAMED_TOKENS,
    )
    tokenizer.add_tokens(list(SPECIAL_TOKENS), special_tokens=True)
    return tokenizer


def build_processor(tokenizer: Qwen2Tokenizer) -> Qwen2_5OmniProcessor:
    """The processor with the numbers of the published `preprocessor_config.json`."""
    pixels = {"min_pixels": 3136, "max_pixels": 12845056}
    patches = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    return Qwen2_5OmniProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels, **patches),
        video_processor=Qwen2VLVideoProcessor(**pixels, **patches),
        feature_extractor=WhisperFeatureExtractor(
            feature_size=128,
            sampling_rate=16000,
            hop_length=160,
            chunk_length=300,
            n_fft=400,
            return_attention_mask=True,
        ),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE,
    )


def build_config(tokenizer: Qwen2Tokenizer, *, hidden_size: int, num_hidden_layers: int) -> Qwen2_5OmniConfig:
    """The configuration; every token id in it is the tokenizer's."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in (*SPECIAL_TOKENS, "user")}
    text_heads = hidden_size // HEAD_DIM
    text_config = {
        "vocab_size": 512,  # a round number above the tokenizer's, as the published 152064
        "hidden_size": hidden_size,
        "intermediate_size": 3 * hidden_size,
        "num_hidden_layers": num_hidden_layers,
        "num_attention_heads": text_heads,
        "num_key_value_heads": text_heads // 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": MROPE_SECTION},
        "tie_word_embeddings": False,
        "pad_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
    }
    audio_config = {
        "d_model": 64,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "num_mel_bins": 128,
        "n_window": 100,
        "max_source_positions": 1500,
        "output_dim": hidden_size,
    }
    vision_config = {
        "depth": 4,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [1, 3],
        "out_hidden_size": hidden_size,
    }
    thinker_config = {
        "text_config": text_config,
        "audio_config": audio_config,
        "vision_config": vision_config,
        "image_token_index": ids["<|IMAGE|>"],
        "audio_token_index": ids["<|AUDIO|>"],
        "video_token_index": ids["<|VIDEO|>"],
        "vision_start_token_id": ids["<|vision_bos|>"],
        "vision_end_token_id": ids["<|vision_eos|>"],
        "vision_token_id": ids["<|vision_pad|>"],
        "audio_start_token_id": ids["<|audio_bos|>"],
        "audio_end_token_id": ids["<|audio_eos|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "user_token_id": ids["user"],
        "position_id_per_seconds": 25,
        "seconds_per_chunk": 2,
    }
    return Qwen2_5OmniConfig(thinker_config=thinker_config, enable_audio_output=False, dtype="float32")


@torch.no_grad()
def randomize(model: torch.nn.Module, *, seed: int) -> None:
    """Draws every parameter anew, so that each one matters and hidden states neither vanish nor explode.

    Matrices and convolutions get a standard deviation of 1/sqrt(fan_in), embeddings 0.5, biases 0.1; the weights of
    norms lie around 1.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            noise = torch.randn(parameter.shape, generator=generator)
            if isinstance(module, torch.nn.Embedding):
                parameter.copy_(0.5 * noise)
            elif name == "bias":
                parameter.copy_(0.1 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(1 + 0.1 * noise)
            else:
                parameter.copy_(noise / parameter[0].numel() ** 0.5)


def write_checkpoint(folder: Path, *, hidden_size: int, num_hidden_layers: int, seed: int) -> None:
    """Writes all files of the checkpoint into the existing folder `folder`."""
    tokenizer = build_tokenizer()
    config = build_config(tokenizer, hidden_size=hidden_size, num_hidden_layers=num_hidden_layers)
    model = Qwen2_5OmniForConditionalGeneration(config)
    randomize(model, seed=seed)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    build_processor(tokenizer).save_pretrained(folder)
    torch.save({}, folder / "spk_dict.pt")

    config_path = folder / "config.json"
    saved = json.loads(config_path.read_text())
    saved["architectures"] = PUBLISHED_ARCHITECTURES
    config_path.write_text(json.dumps(saved, indent=2) + "\n")


def make_tiny_checkpoint(
    output: Path,
    *,
    hidden_size: int = 64,
    num_hidden_layers: int = 4,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Makes the checkpoint in the folder `output` and returns that path; the same arguments give the same weights.

    Args:
        hidden_size: width of the language model, a multiple of 32 (heads of 16, two for each key-value head).
        num_hidden_layers: language layers.
        seed: of the random weights.
        overwrite: replace a checkpoint that is already there.

    Raises:
        InputError: a width that does not fit, no layer, or `output` exists and may not be replaced.
    """
    output = Path(output)
    if hidden_size < 32 or hidden_size % 32:
        raise InputError(f"hidden_size={hidden_size} is not a multiple of 32; use for example 64")
    if num_hidden_layers < 1:
        raise InputError(f"num_hidden_layers={num_hidden_layers}: at least one layer is needed; use for example 4")
    refuse_existing(output, overwrite=overwrite)
    if output.exists() and not (output / "config.json").is_file():
        raise InputError(f"{output} holds no config.json, so it is no checkpoint to overwrite; name another folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as temporary:
        fresh = Path(temporary) / "checkpoint"
        fresh.mkdir()
        write_checkpoint(fresh, hidden_size=hidden_size, num_hidden_layers=num_hidden_layers, seed=seed)
        if output.exists():
            shutil.rmtree(output)
        os.replace(fresh, output)
    return output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--overwrite", action="store_true", help="replace a checkpoint that is there")
    parser.add_argument("--hidden_size", type=int, default=64, help="a multiple of 32 (default: 64)")
    parser.add_argument("--num_hidden_layers", type=int, default=4, help="language layers (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights (default: 0)")
    args = parser.parse_args()
    try:
        output = make_tiny_checkpoint(**vars(args))
    except InputError as error:
        print(f"make_tiny_checkpoint: {error}", file=sys.stderr)
        return 2
    print(f"checkpoint with random weights: {output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
