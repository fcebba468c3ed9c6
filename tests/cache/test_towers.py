"""Embeddings of pieces against the model's own methods on the same input.

Tolerance 1e-6 relative: float32 sums in another order, because the native call pads the sound to 300 s and encodes
frames of a film together.
"""

import numpy as np
import pytest
import torch
from helpers import MAX_PIXELS, MIN_PIXELS, MadeUpSession, relative_error, tiny_encoder

from swift_plugin.cache.encode import PieceRequest, encode_from_media
from swift_plugin.cache.pieces import BlockPieces
from swift_plugin.errors import InputError
from swift_plugin.stream.spec import SAMPLES_PER_STEP, StreamSpec


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint):
    return tiny_encoder(tiny_checkpoint)


@pytest.fixture(scope="module")
def session(tiny_checkpoint):
    return MadeUpSession(tiny_checkpoint / "config.json", [(0.0, 4.6)])


def whole_block(encoder, session, spec: StreamSpec) -> BlockPieces:
    """All pieces of block 1, [2, 4) s."""
    (pieces,) = encode_from_media(session, encoder, spec, [PieceRequest.cached(1, 10, spec, tails=True)])
    return pieces


def native_audio(encoder, thinker, sound: np.ndarray) -> torch.Tensor:
    """The processor's log-mel, padded to 300 s, through the native Thinker's `get_audio_features`."""
    features = encoder.features.processor.feature_extractor(
        sound, sampling_rate=16000, padding="max_length", return_attention_mask=True, return_tensors="pt"
    )
    with torch.no_grad():
        output = thinker.get_audio_features(features["input_features"], feature_attention_mask=features["attention_mask"])
    return output.last_hidden_state


def test_every_tail_equals_get_audio_features(encoder, session, tiny_thinker):
    """Each tail's sound alone: its log-mel is clamped to its own maximum."""
    pieces = whole_block(encoder, session, StreamSpec(video_fps=None)).audio
    assert sorted(pieces) == list(range(1, 11))
    for steps, ours in pieces.items():
        theirs = native_audio(encoder, tiny_thinker, session.sound(2.0, 2.0 + steps * 0.2))
        assert ours.shape == theirs.shape == (5 * steps, encoder.hidden_size)
        assert relative_error(ours, theirs) < 1e-6


def test_every_pair_of_frames_equals_get_video_features(encoder, session, tiny_thinker):
    """Frames of a whole block as one native film; the tower attends within one temporal grid only."""
    spec = StreamSpec(video_fps=2)
    pieces = whole_block(encoder, session, spec).video
    frames = session.frames([2.0, 2.5, 3.0, 3.5])
    inputs = encoder.features.processor.video_processor(
        videos=[torch.from_numpy(frames).permute(0, 3, 1, 2)],
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        do_sample_frames=False,
        return_tensors="pt",
    )
    with torch.no_grad():
        output = tiny_thinker.get_video_features(inputs["pixel_values_videos"], video_grid_thw=inputs["video_grid_thw"])
    theirs = torch.cat(tuple(output.pooler_output))
    assert relative_error(pieces[0, 1], theirs[: len(theirs) // 2]) < 1e-6
    assert relative_error(pieces[2, 3], theirs[len(theirs) // 2 :]) < 1e-6


def test_a_lone_frame_is_doubled_as_the_processor_does(encoder, session, tiny_thinker):
    spec = StreamSpec(video_fps=2)
    pieces = whole_block(encoder, session, spec).video
    inputs = encoder.features.processor.video_processor(
        videos=[torch.from_numpy(session.frames([2.0])).permute(0, 3, 1, 2)],
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        do_sample_frames=False,
        return_tensors="pt",
    )
    with torch.no_grad():
        output = tiny_thinker.get_video_features(inputs["pixel_values_videos"], video_grid_thw=inputs["video_grid_thw"])
    theirs = torch.cat(tuple(output.pooler_output))
    assert relative_error(pieces[0, 0], theirs) < 1e-6


def test_tokens_equal_the_token_table(encoder, tiny_thinker):
    ids = [5, 17, 400, 411]
    assert torch.equal(encoder.encode_tokens(ids), tiny_thinker.get_input_embeddings()(torch.tensor(ids)))


def test_the_log_mel_of_a_piece_is_no_cut_of_the_whole(encoder):
    """Why each piece is encoded by itself: the clamp follows the loudest moment of the clip."""
    time = np.arange(2 * 16000) / 16000
    sound = (np.where(time < 1, 1e-4, 1.0) * np.sin(2 * np.pi * 440 * time)).astype(np.float32)
    whole = encoder.features.log_mel([sound])[0][:, :80]
    piece = encoder.features.log_mel([sound[: 4 * SAMPLES_PER_STEP]])[0]
    assert piece.shape == whole.shape
    assert (whole - piece).abs().max() > 0.1


def test_padding_does_not_change_the_log_mel(encoder, tiny_checkpoint, session):
    """Three hops of zeros give the frames of the native 300 s, to float32 rounding of the transform."""
    sounds = [session.sound(0.0, 0.6), session.sound(1.0, 1.6)]
    native = tiny_encoder(tiny_checkpoint, audio_right_padding_samples=None)
    assert (encoder.features.log_mel(sounds) - native.features.log_mel(sounds)).abs().max() < 1e-5
    short = tiny_encoder(tiny_checkpoint, audio_right_padding_samples=0)  # reflected edges instead of silence
    assert (short.features.log_mel(sounds) - native.features.log_mel(sounds)).abs().max() > 1e-3


def test_a_padding_of_part_of_a_hop_is_refused(tiny_checkpoint):
    with pytest.raises(InputError, match="audio_right_padding_samples=100 .* multiple of 160"):
        tiny_encoder(tiny_checkpoint, audio_right_padding_samples=100)


def test_two_mel_frames_or_fewer_give_no_audio_token(tiny_thinker):
    """Why a step is the least that a tail can have."""
    for frames, tokens in ((1, 0), (2, 0), (3, 1), (20, 5)):
        _, length = tiny_thinker.audio_tower._get_feat_extract_output_lengths(torch.tensor(frames))
        assert length == tokens


def test_the_audio_tower_is_exact_on_blocks_and_not_on_less(encoder, tiny_thinker, session):
    """Two blocks in one clip equal two clips, given the same log-mel; at 1 s the chunks of 2 s are cut."""
    mel = torch.cat(list(encoder.features.log_mel([session.sound(0, 2), session.sound(2, 4)])), dim=1)  # [mel, 400]

    def features(parts: list[torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            outputs = [
                tiny_thinker.get_audio_features(p[None], feature_attention_mask=torch.ones(1, p.shape[1]).long())
                for p in parts
            ]
        return torch.cat([output.last_hidden_state for output in outputs])

    whole = features([mel])
    assert relative_error(features([mel[:, :200], mel[:, 200:]]), whole) < 1e-6
    assert relative_error(features(list(mel.split(100, dim=1))), whole) > 1e-3
