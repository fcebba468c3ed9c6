"""The shared layout holds the same tokens as ten single ones, and its mask lets each see the same."""

import torch

from swift_plugin.stream.layout import TRUNK, StreamShape, split_anchors, stream_layout
from swift_plugin.stream.masks import PADDING, dense_mask
from swift_plugin.stream.spec import StreamSpec

SHAPE = StreamShape(StreamSpec(video_fps=2), 2, 3, prefix_text=4, closure_text=3)


def test_each_branch_sees_exactly_the_sequence_of_its_anchor():
    tails = (1, 4, 5, 10)
    shared = stream_layout(SHAPE, history=3, tails=tails)
    mask = dense_mask(torch.zeros(1, len(shared), dtype=torch.int32), shared.branch[None])[0, 0]
    for number, tail in enumerate(tails):
        single = stream_layout(SHAPE, history=3, tails=(tail,))
        readout = shared.readout_indices[number]
        seen = mask[readout].nonzero().flatten()
        assert torch.equal(shared.position_ids[:, seen], single.position_ids)
        # and every token it sees has seen, of these, exactly the ones before it
        inside = mask[seen][:, seen]
        assert torch.equal(inside, torch.ones(len(seen), len(seen), dtype=torch.bool).tril())


def test_no_token_sees_a_sibling_or_another_document():
    shared = stream_layout(SHAPE, history=1, tails=(2, 7))
    document = torch.cat([torch.zeros(len(shared)), torch.ones(len(shared)), torch.tensor([PADDING])]).int()[None]
    branch = torch.cat([shared.branch, shared.branch, torch.zeros(1, dtype=torch.int32)])[None]
    mask = dense_mask(document, branch)[0, 0]
    query, key = mask.nonzero(as_tuple=True)
    assert torch.equal(document[0, query], document[0, key])
    assert (key <= query).all()
    other_branch = (branch[0, query] != branch[0, key]) & (branch[0, key] != TRUNK)
    assert not other_branch.any()
    assert mask[-1].sum() == 1  # padding sees itself, so that no softmax is empty


def test_tokens_computed_for_a_block_of_ten_anchors():
    """20 s of history, 170 tokens a block: a sixth of the tokens of ten single sequences."""
    shape = StreamShape(StreamSpec(video_fps=2), 6, 10, prefix_text=30, closure_text=20)
    trunk = 30 + 2 + 10 * 170
    # sound of 1..10 steps, one grid of 60 up to the fifth step and two from the sixth, ten closures
    branches = sum(5 * k for k in range(1, 11)) + 5 * 60 + 5 * 120 + 10 * (2 + 20)
    tails = tuple(range(1, 11))
    assert len(stream_layout(shape, history=10, tails=tails)) == trunk + branches
    assert sum(len(stream_layout(shape, history=10, tails=(tail,))) for tail in tails) == 10 * trunk + branches


def test_readouts_are_the_last_closure_tokens():
    layout = stream_layout(SHAPE, history=2, tails=(3, 9))
    ends, length = [], 0
    for part in layout.parts:
        length += part.length
        if part.kind == "closure":
            ends.append(length - 1)
    assert layout.readout_indices.tolist() == ends


def test_anchors_share_a_history_or_stand_alone():
    assert split_anchors([1, 2, 3], shared=True) == [(1, 2, 3)]
    assert split_anchors([1, 2, 3], shared=False) == [(1,), (2,), (3,)]
