"""The tiny checkpoint is loaded with transformers' own classes and looked at through them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoProcessor,
    Qwen2_5OmniForConditionalGeneration,
    Qwen2_5OmniProcessor,
    Qwen2_5OmniThinkerForConditionalGeneration,
)

from swift_plugin.errors import InputError


@pytest.fixture(scope="module")
def processor(tiny_checkpoint):
    return AutoProcessor.from_pretrained(tiny_checkpoint)


@pytest.fixture(scope="module")
def thinker(tiny_checkpoint):
    return Qwen2_5OmniForConditionalGeneration.from_pretrained(tiny_checkpoint).thinker.eval()


@pytest.fixture(scope="module")
def inputs(processor):
    """4 s of faint noise and its 8 frames at 2 fps, as one film with sound."""
    conversation = [
        {"role": "system", "content": "You are Qwen."},
        {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "Who speaks next?"}]},
    ]
    text = processor.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
    generator = np.random.default_rng(0)
    return processor(
        text=text,
        audio=[(0.01 * generator.standard_normal(64000)).astype(np.float32)],
        videos=[torch.from_numpy(generator.integers(0, 256, (8, 3, 112, 140), dtype=np.uint8))],
        use_audio_in_video=True,
        fps=2.0,
        size={"shortest_edge": 28 * 28, "longest_edge": 112 * 140},
        return_tensors="pt",
    )


def test_config_has_the_published_type_and_architecture(tiny_checkpoint):
    config = AutoConfig.from_pretrained(tiny_checkpoint)
    assert config.model_type == "qwen2_5_omni"
    assert config.architectures == ["Qwen2_5OmniModel"]


def test_swift_finds_the_model_type(tiny_checkpoint):
    model_meta = pytest.importorskip("swift.model.model_meta")
    architectures = AutoConfig.from_pretrained(tiny_checkpoint).architectures
    assert model_meta.get_matched_model_types(architectures) == ["qwen2_5_omni"]


def test_the_thinker_loads_alone_with_the_same_weights(tiny_checkpoint, thinker):
    thinker_class = Qwen2_5OmniThinkerForConditionalGeneration
    alone, report = thinker_class.from_pretrained(tiny_checkpoint, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    stored = load_file(tiny_checkpoint / "model.safetensors")
    weights = alone.state_dict()
    assert {f"thinker.{name}" for name in weights} == set(stored)
    for name, weight in weights.items():
        assert torch.equal(weight, stored[f"thinker.{name}"]) and torch.equal(weight, thinker.state_dict()[name]), name


def test_special_tokens_are_single_ids_equal_to_the_config(tiny_checkpoint, processor):
    tokenizer = processor.tokenizer
    config = AutoConfig.from_pretrained(tiny_checkpoint).thinker_config
    expected = {
        "<|IMAGE|>": config.image_token_id,
        "<|AUDIO|>": config.audio_token_id,
        "<|VIDEO|>": config.video_token_id,
        "<|vision_bos|>": config.vision_start_token_id,
        "<|vision_eos|>": config.vision_end_token_id,
        "<|vision_pad|>": config.vision_token_id,
        "<|audio_bos|>": config.audio_start_token_id,
        "<|audio_eos|>": config.audio_end_token_id,
        "<|endoftext|>": config.text_config.pad_token_id,
        "<|im_end|>": config.text_config.eos_token_id,
        "user": config.user_token_id,
    }
    for token, index in expected.items():
        assert tokenizer.encode(token) == [index], token
        assert index < config.text_config.vocab_size
    assert len(set(expected.values())) == len(expected)


def test_special_tokens_stand_in_the_published_order(processor):
    """The published tokenizer has <|endoftext|> 151643 ... <|AUDIO|> 151646 ... <|IMAGE|> 151655, <|VIDEO|> 151656;
    the numbers are the defaults of transformers' Qwen2_5OmniThinkerConfig and Qwen2_5OmniTalkerConfig."""
    published = {
        "<|AUDIO|>": 151646,
        "<|audio_bos|>": 151647,
        "<|audio_eos|>": 151648,
        "<|vision_bos|>": 151652,
        "<|vision_eos|>": 151653,
        "<|IMAGE|>": 151655,
        "<|VIDEO|>": 151656,
    }
    shifts = {index - processor.tokenizer.convert_tokens_to_ids(token) for token, index in published.items()}
    assert len(shifts) == 1


@pytest.mark.parametrize("text", ["Who speaks?", "é 漢字 🙂\n\ttab", bytes(range(32, 127)).decode()])
def test_any_text_survives_the_tokenizer(processor, text):
    assert processor.tokenizer.decode(processor.tokenizer.encode(text)) == text


def test_chat_template_writes_the_published_format(processor):
    content = [{"type": "video"}, {"type": "audio"}, {"type": "text", "text": "Hm?"}]
    conversation = [{"role": "user", "content": content}]
    assert processor.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_bos|><|VIDEO|><|vision_eos|><|audio_bos|><|AUDIO|><|audio_eos|>Hm?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_processor_interleaves_blocks_of_two_seconds(processor, inputs):
    """4 s: two blocks of 2 grids x (8 x 10 patches / 4) = 40 video tokens and 50 audio tokens."""
    assert isinstance(processor, Qwen2_5OmniProcessor)
    assert inputs["video_grid_thw"].tolist() == [[4, 8, 10]]
    tokens = processor.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    start, end = tokens.index("<|vision_bos|>"), tokens.index("<|vision_eos|>")
    block = ["<|VIDEO|>"] * 40 + ["<|AUDIO|>"] * 50
    assert tokens[start + 1 : end] == ["<|audio_bos|>", *block, *block, "<|audio_eos|>"]


def test_forward_gives_hidden_states_that_differ_between_tokens(thinker, inputs):
    with torch.no_grad():
        output = thinker(**inputs, use_audio_in_video=True, output_hidden_states=True)
    length = inputs["input_ids"].shape[1]
    assert len(output.hidden_states) == 1 + 4
    for hidden in output.hidden_states:
        assert hidden.shape == (1, length, 64) and hidden.dtype == torch.float32
        assert hidden.isfinite().all()
        assert 0.1 < hidden[0].std(dim=0).mean() < 10


def test_the_last_token_hears_and_sees_the_beginning(thinker, inputs):
    """Random weights that ignored the towers would make every comparison of sequences empty."""
    changed = {name: {**inputs, name: inputs[name].clone()} for name in ("input_features", "pixel_values_videos")}
    changed["input_features"]["input_features"][..., :200] += 0.5
    changed["pixel_values_videos"]["pixel_values_videos"][:80] += 0.5
    with torch.no_grad():
        before = thinker(**inputs, use_audio_in_video=True).logits[0, -1]
        for name, other in changed.items():
            after = thinker(**other, use_audio_in_video=True).logits[0, -1]
            assert (after - before).abs().max() > 1e-3, name


def test_rope_index_counts_25_positions_a_second(thinker, inputs):
    positions, _ = thinker.get_rope_index(
        inputs["input_ids"],
        video_grid_thw=inputs["video_grid_thw"],
        attention_mask=inputs["attention_mask"],
        use_audio_in_video=True,
        audio_seqlens=inputs["feature_attention_mask"].sum(dim=1),
        second_per_grids=inputs["video_second_per_grid"],
    )
    assert positions.shape == (3, 1, inputs["input_ids"].shape[1])
    audio = positions[:, 0, inputs["input_ids"][0] == thinker.config.audio_token_id]
    assert torch.equal(audio - audio[0, 0], torch.arange(100).expand(3, -1))


def test_the_seed_alone_decides_the_weights(tiny_checkpoint, load_example, tmp_path):
    make = load_example("make_tiny_checkpoint").make_tiny_checkpoint
    stored = load_file(tiny_checkpoint / "model.safetensors")
    again = load_file(make(tmp_path / "same") / "model.safetensors")
    other = load_file(make(tmp_path / "other", seed=1) / "model.safetensors")
    assert all(torch.equal(again[name], weight) for name, weight in stored.items())
    assert not any(torch.equal(other[name], weight) for name, weight in stored.items())


def test_other_sizes_replace_the_checkpoint_only_when_told(load_example, tmp_path):
    make = load_example("make_tiny_checkpoint").make_tiny_checkpoint
    folder = make(tmp_path / "tiny", hidden_size=32, num_hidden_layers=1)
    with pytest.raises(InputError, match="--overwrite"):
        make(folder)
    make(folder, hidden_size=96, num_hidden_layers=2, overwrite=True)
    text_config = json.loads((folder / "config.json").read_text())["thinker_config"]["text_config"]
    assert (text_config["hidden_size"], text_config["num_hidden_layers"]) == (96, 2)
    assert (text_config["num_attention_heads"], text_config["num_key_value_heads"]) == (6, 3)
    assert list(tmp_path.iterdir()) == [folder]


def test_bad_arguments_are_told_and_nothing_is_written(load_example, tmp_path):
    make = load_example("make_tiny_checkpoint").make_tiny_checkpoint
    with pytest.raises(InputError, match="hidden_size=40"):
        make(tmp_path / "tiny", hidden_size=40)
    with pytest.raises(InputError, match="num_hidden_layers=0"):
        make(tmp_path / "tiny", num_hidden_layers=0)
    holiday = tmp_path / "photos"
    holiday.mkdir()
    with pytest.raises(InputError, match="no checkpoint"):
        make(holiday, overwrite=True)
    assert list(tmp_path.iterdir()) == [holiday]
