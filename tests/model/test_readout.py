"""The readout against the native Thinker's own forward, from the processor's output, on random weights in float32.

Tolerance 1e-5 relative: the same float32 sums in another order.
"""

import numpy as np
import pytest
import torch
from helpers import MAX_PIXELS, MIN_PIXELS, MadeUpSession, make_cache, relative_error, tiny_encoder

from swift_plugin.cache.conversation import DEFAULT_QUESTION, DEFAULT_SYSTEM
from swift_plugin.cache.reader import CacheReader
from swift_plugin.model.head import TurnHeadConfig
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.stream.masks import CAUSAL
from swift_plugin.task.collator import OpenStreamCollator

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint):
    return tiny_encoder(tiny_checkpoint)


@pytest.fixture(scope="module")
def manifest_path(tiny_checkpoint, encoder, tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("cache") / "s", tiny_checkpoint, encoder=encoder, spans=[(0, 13)])


@pytest.fixture
def predictor(tiny_checkpoint):
    model = TurnPredictor.load(tiny_checkpoint, dtype=torch.float32)
    model.attach_head(TurnHeadConfig(hidden_size=model.config.hidden_size))
    return model.eval()


def native_hidden_states(encoder, thinker, manifest_path, *, block: int, tail_steps: int) -> tuple[torch.Tensor, ...]:
    """The last token after each layer, by the model's own code alone.

    The processor lays out the film with its sound and makes the pixels; the log-mel is the concatenation of those of
    the blocks, since a live stream has no other. The model encodes, scatters, finds its positions and runs.
    """
    manifest = CacheReader(manifest_path).manifest
    session = MadeUpSession(manifest_path, manifest.cached_spans)
    first = max(0, block - manifest.spec.memory_blocks)
    end = block * 2 + tail_steps * 0.2
    times = [t / 2 for t in range(first * 4, block * 4 + manifest.spec.frames_seen(tail_steps))]
    processor = encoder.features.processor
    messages = [
        {"role": "system", "content": [{"type": "text", "text": DEFAULT_SYSTEM}]},
        {"role": "user", "content": [{"type": "video", "video": ""}, {"type": "text", "text": DEFAULT_QUESTION}]},
    ]
    inputs = processor(
        text=processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False),
        audio=[session.sound(first * 2, end)],
        videos=[torch.from_numpy(session.frames(times)).permute(0, 3, 1, 2)],
        use_audio_in_video=True,
        fps=2.0,
        do_sample_frames=False,
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        return_tensors="pt",
    )
    clips = [session.sound(b * 2, b * 2 + 2) for b in range(first, block)] + [session.sound(block * 2, end)]
    mel = torch.cat([encoder.features.log_mel([clip])[0] for clip in clips], dim=1)
    inputs["input_features"][0, :, : mel.shape[1]] = mel
    with torch.no_grad():
        output = thinker(**inputs, use_audio_in_video=True, output_hidden_states=True, use_cache=False)
    return tuple(state[0, -1] for state in output.hidden_states)


@pytest.mark.parametrize(("block", "tail_steps"), [(0, 1), (0, 10), (1, 3), (3, 1), (4, 7), (5, 10)])
def test_readout_equals_the_native_forward(encoder, tiny_thinker, predictor, manifest_path, block, tail_steps):
    reader = CacheReader(manifest_path)
    embeddings, layout = reader.sequence(block, (tail_steps,))
    length = len(layout)
    ours = predictor.read(
        embeddings[None],
        layout.position_ids[:, None],
        torch.zeros(1, length, dtype=torch.int32),
        layout.branch[None],
        torch.tensor([0]),
        layout.readout_indices,
        CAUSAL,
    )
    theirs = native_hidden_states(encoder, tiny_thinker, manifest_path, block=block, tail_steps=tail_steps)[-1]
    assert relative_error(ours[0, 0], theirs) < TOLERANCE


def rows(manifest_path, blocks: list[int], tails=tuple(range(1, 11))) -> list[dict]:
    targets = np.zeros((len(tails), 11, 3)).tolist()
    return [{"manifest": str(manifest_path), "block_index": b, "tails": list(tails), "targets": targets} for b in blocks]


def run(predictor, batch: dict) -> torch.Tensor:
    inputs = {name: tensor for name, tensor in batch.items() if name not in ("labels", "present")}
    return predictor(**inputs).logits


@pytest.mark.parametrize("packed", [False, True])
def test_ten_readouts_of_one_forward_equal_ten_forwards(predictor, manifest_path, packed):
    items = rows(manifest_path, [0, 2, 5])
    shared = run(predictor, OpenStreamCollator(shared=True, packed=packed)(items))
    single = torch.cat([run(predictor, OpenStreamCollator(shared=False)(rows(manifest_path, [b], (t,)))) for b in (0, 2, 5) for t in range(1, 11)])
    assert shared.shape == single.shape == (30, 10, 3)
    assert relative_error(shared, single) < TOLERANCE


def test_eager_and_sdpa_agree(predictor, manifest_path):
    batch = OpenStreamCollator()(rows(manifest_path, [1, 3]))
    by_sdpa = run(predictor, batch)
    predictor.config._attn_implementation = predictor.model.config._attn_implementation = "eager"
    assert relative_error(run(predictor, batch), by_sdpa) < TOLERANCE


def test_the_last_layers_are_read_at_the_readout(encoder, tiny_thinker, predictor, manifest_path):
    """Each of the last layers' states, through the model's final norm; the native ones come before that norm."""
    predictor.attach_head(TurnHeadConfig(hidden_size=predictor.config.hidden_size, num_input_layers=3))
    reader = CacheReader(manifest_path)
    embeddings, layout = reader.sequence(3, (4,))
    ours = predictor.read(
        embeddings[None],
        layout.position_ids[:, None],
        torch.zeros(1, len(layout), dtype=torch.int32),
        layout.branch[None],
        torch.tensor([0]),
        layout.readout_indices,
        CAUSAL,
    )[0]
    native = native_hidden_states(encoder, tiny_thinker, manifest_path, block=3, tail_steps=4)
    theirs = torch.stack([*(predictor.model.norm(state) for state in native[-3:-1]), native[-1]])
    assert relative_error(ours, theirs) < TOLERANCE


def test_only_the_language_model_is_read(tiny_checkpoint, tiny_thinker):
    model = TurnPredictor.load(tiny_checkpoint, dtype=torch.float32)
    native = {f"model.{name}": tensor for name, tensor in tiny_thinker.model.state_dict().items()}
    ours = model.state_dict()
    assert ours.keys() == native.keys() - {"model.embed_tokens.weight"}
    assert all(torch.equal(ours[name], native[name]) for name in ours)
