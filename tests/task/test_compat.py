"""Each work-around is still needed: a test here fails when the package it is for has been mended."""

from __future__ import annotations

import inspect

import pytest
import torch
from swift.arguments import SftArguments
from swift.dataloader import BatchSamplerShard
from swift.pipelines import sft_main
from swift.trainers.mixin import SwiftMixin
from task.helpers_run import Job, untouched_process
from torch.utils.data import DataLoader
from transformers import Trainer

from swift_plugin.task import compat


def test_ms_swift_patches_checkpointing_once():
    """Else `forget_checkpointing_of_earlier_runs` can go."""
    assert "hasattr(torch.utils.checkpoint, '_old_checkpoint')" in inspect.getsource(SwiftMixin._fix_gradient_checkpointing)


def test_each_run_of_a_process_logs_into_its_own_folder(tiny_checkpoint, sessions, tmp_path):
    """ms-swift names the folder once a process: else `forget_log_folder_of_earlier_runs` can go."""
    assert "os.environ.setdefault('TENSORBOARD_LOGGING_DIR'" in inspect.getsource(SftArguments._add_version)
    options = {"report_to": "tensorboard", "max_steps": 1, "save_strategy": "no"}
    with untouched_process():
        for name in ("one", "two"):
            sft_main(Job(model=tiny_checkpoint, output=tmp_path / name, train=sessions["short"], options=options).argv())
            assert len(list((tmp_path / name / "runs").glob("events.*"))) == 1


def test_transformers_seeds_all_ranks_alike():
    """Else `seed_ranks_apart` can go."""
    assert "set_seed(self.args.seed)" in inspect.getsource(Trainer.__init__)


@pytest.mark.parametrize("mended", [False, True])
def test_a_loader_draws_from_the_global_generator(mended):
    """Else `draw_apart` can go: with workers that persist, it draws in the first epoch only."""
    loader = DataLoader(list(range(4)), num_workers=1, persistent_workers=True)
    if mended:
        compat.draw_apart(loader)
    drawn = []
    for _ in range(2):
        before = torch.random.get_rng_state()
        list(loader)
        drawn.append(not torch.equal(before, torch.random.get_rng_state()))
    assert drawn == ([False, False] if mended else [True, False])


def order(rows: int, rank: int) -> list[int]:
    """Rows in the order in which ms-swift's sampler gives them to one of two ranks."""
    sampler_class = type("Ranked", (BatchSamplerShard,), {"rank": rank, "world_size": 2})
    return [i for batch in sampler_class(rows, 2, shuffle=True, drop_last=False, data_seed=0) for i in batch]


def test_ms_swift_leaves_out_the_last_row_on_two_ranks():
    """Else `every_row_on_a_rank` can go."""
    assert sorted(order(15, 0) + order(15, 1)) == list(range(14))


def test_rows_are_filled_up_for_all_ranks():
    rows = [{"targets": [[[1.0, 0.0, 0.0]] * 11], "tails": [3]}] * 15
    filled = compat._FilledUp(rows, multiple=2)
    assert len(filled) == 16 and sorted(order(len(filled), 0) + order(len(filled), 1)) == list(range(16))
    assert filled[14] is rows[14]
    assert torch.tensor(filled[15]["targets"]).isnan().all() and filled[15]["tails"] == [3]
    assert torch.tensor(rows[0]["targets"]).isfinite().all()
    assert len(compat._FilledUp(rows, multiple=1)) == 15
