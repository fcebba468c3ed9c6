"""Tails made from the media while training: the cached ones, the same run, and what the log says of it."""

import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
from film import make_film_cache
from helpers import relative_error
from task.helpers_run import Job, lora_b, relative_difference, train, train_processes

from swift_plugin.cache.manifest import Manifest
from swift_plugin.config import TurnOptions
from swift_plugin.errors import InputError
from swift_plugin.task.collator import OpenStreamCollator
from swift_plugin.task.dataset import anchor_rows, group_by_block
from swift_plugin.task.online_tail import OnlineTail

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def films(tiny_checkpoint, tmp_path_factory) -> dict[str, Path]:
    """Two films with tails, the first of them also without; and one for validation."""
    folder = tmp_path_factory.mktemp("films")
    paths = {
        name: make_film_cache(folder / name, tiny_checkpoint, seconds=seconds, seed=seed, memory_seconds=4)
        for name, seconds, seed in (("a", 13.0, 0), ("b", 9.0, 1), ("val", 7.4, 2))
    }
    bare = make_film_cache(folder / "bare", tiny_checkpoint, seconds=13.0, seed=0, memory_seconds=4, tails=False)
    return {**paths, "bare": bare}


def online(paths, checkpoint: Path, **options) -> OnlineTail:
    manifests = {path.resolve(): Manifest.load(path) for path in paths}
    return OnlineTail(manifests, checkpoint, TurnOptions(online_tail=True, **options), device=CPU)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("decoder", ["pyav", "torchcodec", "decord"])
def test_the_online_tail_is_the_cached_tail(films, tiny_checkpoint, shared, packed, decoder):
    """Two sessions in one batch. Tolerance 1e-6 relative: sums over another batch of pieces, in float32."""
    pytest.importorskip({"pyav": "av"}.get(decoder, decoder))
    rows = [*group_by_block(anchor_rows(films["a"])).select([0, 3]), *group_by_block(anchor_rows(films["b"])).select([2])]
    cached = OpenStreamCollator(shared=shared, packed=packed)(rows)
    tails = online([films["a"], films["b"]], tiny_checkpoint, decoder=decoder)
    batch = OpenStreamCollator(shared=shared, packed=packed, tail_inputs=tails.inputs)(rows)
    assert relative_error(batch["inputs_embeds"], cached["inputs_embeds"]) > 0.1  # open until the towers have run
    batch = tails.fill(batch)
    tails.close()
    assert batch.keys() == cached.keys()
    assert relative_error(batch["inputs_embeds"], cached["inputs_embeds"]) < 1e-6


def test_log_mels_beside_the_towers_are_those_of_the_workers(films, tiny_checkpoint):
    rows = list(group_by_block(anchor_rows(films["a"])).select([1]))
    batches = []
    for device in ("cpu", "cpu:0"):  # the same device by another name, which is not the workers' own
        tails = online([films["a"]], tiny_checkpoint, audio_feature_device=device)
        batch = OpenStreamCollator(tail_inputs=tails.inputs)(rows)
        assert batch["tail"]["sound"].ndim == (3 if device == "cpu" else 2)
        batches.append(tails.fill(batch)["inputs_embeds"])
        tails.close()
    assert torch.equal(*batches)


def test_a_cache_without_tails_is_smaller_and_gives_the_same_sequences(films, tiny_checkpoint):
    sizes = {name: sum(shard.bytes for shard in Manifest.load(films[name]).shards) for name in ("a", "bare")}
    assert sizes["bare"] < 0.45 * sizes["a"]
    rows = [dict(row, manifest=str(films["bare"])) for row in group_by_block(anchor_rows(films["a"])).select([4])]
    with pytest.raises(InputError, match="built without tails; train with turn_online_tail"):
        OpenStreamCollator()(rows)
    tails = online([films["bare"]], tiny_checkpoint)
    batch = tails.fill(OpenStreamCollator(tail_inputs=tails.inputs)(rows))
    tails.close()
    cached = OpenStreamCollator()([dict(row, manifest=str(films["a"])) for row in rows])
    assert relative_error(batch["inputs_embeds"], cached["inputs_embeds"]) < 1e-6


def job(films, checkpoint, output, *, train_on="a", turn=None, **options) -> Job:
    return Job(
        model=checkpoint,
        output=output,
        train=[films[train_on], films["b"]],
        val=films["val"],
        options={"per_device_train_batch_size": 2, "save_steps": 2, "eval_steps": 2, "max_steps": 4, "learning_rate": 0.01, **options},
        turn=turn or {},
    )


@pytest.fixture(scope="module")
def cached_run(films, tiny_checkpoint, tmp_path_factory):
    return train(job(films, tiny_checkpoint, tmp_path_factory.mktemp("cached") / "out"))


@pytest.mark.parametrize("depth", [0, 2])
def test_training_is_the_same_with_cached_and_with_online_tails(films, tiny_checkpoint, cached_run, tmp_path, depth):
    """Two sessions, batches of two blocks, worker processes, evaluation, a cache without tails.

    Tolerance 1e-3 of the update: Adam's first steps divide by the gradient's own size and so enlarge rounding.
    """
    turn = {"turn_online_tail": True, **({} if depth == 2 else {"turn_prefetch_depth": 0})}
    run = train(job(films, tiny_checkpoint, tmp_path / "out", train_on="bare", turn=turn, dataloader_num_workers=1))
    assert run.losses() == pytest.approx(cached_run.losses(), rel=1e-4)
    assert [e["eval_loss"] for e in run.evaluations()] == pytest.approx(
        [e["eval_loss"] for e in cached_run.evaluations()], rel=1e-4
    )
    assert relative_difference(lora_b(run.parameters()), lora_b(cached_run.parameters())) < 1e-3

    logged = [entry for entry in run.history if "loss" in entry]
    assert sum(entry["tail_batches"] for entry in logged) >= 4
    assert all(0 <= entry["tail_queue_depth"] <= depth for entry in logged)
    assert all(entry["tail_wait_seconds"] > 0 for entry in logged) or depth  # a batch that lay ready cost no time
    summary = json.loads((run.folder / "train_summary.json").read_text())["online_tail"]
    assert summary["device"] == "cpu" and summary["prefetch_depth"] == depth and summary["batches"] >= 4


@pytest.mark.slow
def test_two_ranks_with_online_tails(films, tiny_checkpoint, cached_run, tmp_path):
    """One block a rank is the batch of two blocks of one process."""
    turn = {"turn_online_tail": True, "turn_tail_device": "cpu,cpu"}
    options = {"per_device_train_batch_size": 1, "dataloader_num_workers": 1}
    run = train_processes(job(films, tiny_checkpoint, tmp_path / "out", turn=turn, **options), processes=2)
    assert len(run.losses()) == 4
    assert json.loads((run.folder / "train_summary.json").read_text())["world_size"] == 2


def test_a_producer_that_fails_stops_the_run_with_its_own_error(films, tiny_checkpoint, tmp_path):
    """The film is cut after it was cached and opened: what the workers cannot decode ends training."""
    folder = tmp_path / "cut"
    shutil.copytree(films["a"].parents[1], folder)
    manifest = folder / "cache" / "turn_manifest.json"
    tails = online([manifest], tiny_checkpoint)
    (folder / "film.mp4").write_bytes(b"")
    collate = OpenStreamCollator(tail_inputs=tails.inputs)
    rows = list(group_by_block(anchor_rows(manifest)))
    batches = tails.ahead(collate([row]) for row in rows)
    with pytest.raises(InputError, match="film.mp4"):
        next(batches)
    with pytest.raises(InputError, match="film.mp4"):
        next(batches)
    tails.close()


def test_the_queue_is_bounded_and_ends_with_the_batches(films, tiny_checkpoint):
    tails = online([films["a"]], tiny_checkpoint, prefetch_depth=2)
    collate = OpenStreamCollator(tail_inputs=tails.inputs)
    row = next(iter(group_by_block(anchor_rows(films["a"]))))
    made = []
    source = iter([made.append(n) or collate([row]) for n in range(5)])
    assert len(list(tails.ahead(source))) == 5
    endless = (made.append(0) or collate([row]) for _ in itertools.count())
    made.clear()
    batches = tails.ahead(endless)
    for _ in range(3):
        next(batches)
    tails.stop()
    assert 3 <= len(made) <= 3 + 2 + 2  # three taken, two in the queue, one waiting for room, one begun
    tails.close()


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_a_slow_producer_is_seen_in_the_log(films, tiny_checkpoint, monkeypatch, share):
    from swift_plugin.task import online_tail

    said = []
    monkeypatch.setattr(online_tail.logger, "warning", said.append)
    tails = online([films["a"]], tiny_checkpoint)
    tails.times.batches, tails.times.waited, tails.times.queued = 4, 10 * share, 6
    assert tails.report(seconds=10.0) == {"tail_batches": 4, "tail_wait_seconds": 10 * share, "tail_queue_depth": 1.5}
    assert [("stood still for 50%" in text) for text in said] == ([True] if share else [])
    assert tails.report(seconds=10.0)["tail_batches"] == 0
    tails.close()


def test_media_that_moved_or_changed_are_refused_by_name(films, tiny_checkpoint, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(films["a"].parents[1], folder)
    manifest = folder / "cache" / "turn_manifest.json"
    shutil.copy(films["b"].parents[1] / "film.mp4", folder / "film.mp4")
    with pytest.raises(InputError, match="made from other media .*film.mp4.*build the cache again"):
        online([manifest], tiny_checkpoint)
    (folder / "film.mp4").unlink()
    with pytest.raises(InputError, match="film.mp4: not there, but .*turn_manifest.json was made from it"):
        online([manifest], tiny_checkpoint)


def test_options_of_the_tail_without_it_are_refused(films, tiny_checkpoint, tmp_path):
    with pytest.raises(InputError) as error:
        train(job(films, tiny_checkpoint, tmp_path / "out", train_on="bare", turn={"turn_tail_device": "cpu"}))
    assert "turn_tail_device has no effect without turn_online_tail" in str(error.value)
    assert "cached without tails; add turn_online_tail" in str(error.value)


def test_fewer_devices_than_ranks_are_refused(films, tiny_checkpoint):
    manifests = {films["a"].resolve(): Manifest.load(films["a"])}
    options = TurnOptions(online_tail=True, tail_device="cpu,cpu")
    with pytest.raises(InputError, match="names 2 devices, rank 2 has none"):
        OnlineTail(manifests, tiny_checkpoint, options, device=CPU, local_rank=2)
