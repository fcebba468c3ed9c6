"""Building, reading, going on, refusing."""

import hashlib
import json
import shutil

import pytest
import torch
from helpers import MadeUpSession, cache_arguments, make_cache, tiny_encoder

import swift_plugin.cache.builder as builder
from swift_plugin.cache.encode import PieceRequest, encode_from_media
from swift_plugin.cache.manifest import MANIFEST_NAME, Manifest, check_same_contract
from swift_plugin.cache.reader import CacheReader
from swift_plugin.errors import InputError


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint):
    return tiny_encoder(tiny_checkpoint)


@pytest.fixture(scope="module")
def manifest_path(tiny_checkpoint, encoder, tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("cache") / "s", tiny_checkpoint, encoder=encoder, spans=[(0, 9), (20, 27.4)])


def test_every_piece_is_read_back_as_it_was_made(manifest_path, encoder):
    reader = CacheReader(manifest_path)
    session = MadeUpSession(manifest_path, reader.manifest.cached_spans)
    for block, steps in reader.blocks.steps.items():
        pieces = reader.pieces(block)
        assert sorted(pieces.audio) == list(range(1, steps + 1))
        # block by block instead of eight at once: the same numbers to float32 rounding
        request = PieceRequest.cached(block, steps, reader.manifest.spec, tails=True)
        (expected,) = encode_from_media(session, encoder, reader.manifest.spec, [request])
        for own, theirs in ((pieces.audio, expected.audio), (pieces.video, expected.video)):
            assert own.keys() == theirs.keys()
            torch.testing.assert_close(torch.cat(list(own.values())), torch.cat(list(theirs.values())))


def test_a_sequence_is_made_of_its_pieces(manifest_path):
    reader = CacheReader(manifest_path)
    embeddings, layout = reader.sequence(3, (2, 10))
    position = 0
    for part in layout.parts:
        got = embeddings[position : position + part.length]
        position += part.length
        if part.kind == "audio":
            assert torch.equal(got, reader.pieces(3 + part.block).audio[part.num_steps])
        elif part.kind == "video":
            assert torch.equal(got, reader.pieces(3 + part.block).video[part.frames])
        else:
            assert torch.equal(got, reader.prefix if part.kind == "prefix" else reader.closure)


def test_history_stops_at_a_gap(manifest_path):
    reader = CacheReader(manifest_path)
    assert sorted(reader.blocks.steps) == [0, 1, 2, 3, 4, 10, 11, 12, 13]
    _, layout = reader.sequence(11, (1,))
    assert {part.block for part in layout.parts if part.kind == "audio"} == {-1, 0}


def test_sound_only_has_no_video_token(tiny_checkpoint, encoder, tmp_path):
    path = make_cache(tmp_path / "s", tiny_checkpoint, encoder=encoder, video_fps=None, spans=[(0, 5)])
    reader = CacheReader(path)
    embeddings, layout = reader.sequence(2, (1, 5))
    assert {part.kind for part in layout.parts} == {"prefix", "audio", "closure"}
    assert embeddings.shape == (len(layout), reader.manifest.hidden_size)


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_a_build_that_was_stopped_goes_on_to_the_same_bytes(tiny_checkpoint, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "BLOCKS_PER_SHARD", 2)
    whole = make_cache(tmp_path / "a", tiny_checkpoint, encoder=encoder, spans=[(0, 13)]).parent
    arguments = cache_arguments(tmp_path / "b", tiny_checkpoint, encoder=encoder, spans=[(0, 13)])
    calls, encode = [], builder._encode_shard

    def stop_in_the_third_shard(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(*args)

    monkeypatch.setattr(builder, "_encode_shard", stop_in_the_third_shard)
    with pytest.raises(KeyboardInterrupt):
        builder.build_cache(**arguments)
    assert not (arguments["folder"] / MANIFEST_NAME).exists()

    calls.clear()
    monkeypatch.setattr(builder, "_encode_shard", lambda *args: calls.append(args) or encode(*args))
    builder.build_cache(**arguments)
    assert len(calls) == 2  # of four shards, two were kept
    assert digests(arguments["folder"]) == digests(whole)


def test_an_unfinished_cache_with_another_plan_is_refused(manifest_path, tmp_path):
    folder = tmp_path / "c"
    shutil.copytree(manifest_path.parent, folder)
    (folder / MANIFEST_NAME).unlink()
    plan = {"memory_seconds": 4.0}
    (folder / builder.PLAN_NAME).write_text(json.dumps({"memory_seconds": 8.0}))
    with pytest.raises(InputError, match="memory_seconds 8.0 instead of 4.0"):
        builder._start_or_continue(folder, plan)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder, content: content.pop("dtype"), "missing or unknown: dtype"),
        (lambda folder, content: content.update(colour="red"), "missing or unknown: colour"),
        (lambda folder, content: content.update(schema_version=9), "schema_version 9 found, 2 needed"),
        (lambda folder, content: (folder / "shard-00000.safetensors").unlink(), "is missing"),
        (lambda folder, content: (folder / "shard-00000.safetensors").write_bytes(b"x"), "has 1 bytes"),
    ],
)
def test_a_broken_cache_is_refused_by_name(manifest_path, tmp_path, damage, message):
    folder = tmp_path / "c"
    shutil.copytree(manifest_path.parent, folder)
    content = json.loads((folder / MANIFEST_NAME).read_text())
    damage(folder, content)
    (folder / MANIFEST_NAME).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message) as error:
        Manifest.load(folder / MANIFEST_NAME)
    assert "\n" not in str(error.value)


def test_sessions_of_other_contracts_are_told_apart(manifest_path, tiny_checkpoint, encoder, tmp_path):
    other = make_cache(tmp_path / "s", tiny_checkpoint, encoder=encoder, memory_seconds=4, spans=[(0, 5)])
    manifests = {path: Manifest.load(path) for path in (manifest_path, other)}
    with pytest.raises(InputError, match="memory_seconds is 4, but 8 in"):
        check_same_contract(manifests)
