from swift_plugin.stream.anchors import list_anchors, session_blocks
from swift_plugin.stream.spec import StreamSpec


def test_a_plain_recording_has_an_anchor_each_step():
    blocks = session_blocks([(0.0, 5.1)])
    assert blocks.steps == {0: 10, 1: 10, 2: 5}
    anchors = list_anchors(blocks, target_steps=26)
    assert [anchor.target_index for anchor in anchors] == list(range(25))
    assert [(anchor.block_index, anchor.tail_steps) for anchor in anchors[8:12]] == [(0, 9), (0, 10), (1, 1), (1, 2)]
    # the future ends with the media at 25 steps, though there is one more target
    assert [anchor.has_future_target for anchor in anchors].count(True) == 15


def test_a_future_without_targets_does_not_count():
    anchors = list_anchors(session_blocks([(0.0, 8.0)]), target_steps=20)
    assert [anchor.target_index for anchor in anchors if anchor.has_future_target] == list(range(10))


def test_nothing_crosses_a_gap():
    blocks = session_blocks([(0.0, 6.0), (60.5, 66.0)])
    assert blocks.steps == {0: 10, 1: 10, 2: 10, 31: 10, 32: 10}  # block 30 began before its media
    spec = StreamSpec(memory_seconds=20)
    assert list(blocks.history(31, spec)) == []
    assert list(blocks.history(32, spec)) == [31]
    anchors = list_anchors(blocks, target_steps=400)
    with_future = [anchor.target_index for anchor in anchors if anchor.has_future_target]
    assert with_future == [*range(0, 20), *range(310, 320)]


def test_history_is_at_most_the_memory():
    blocks = session_blocks([(0.0, 60.0)])
    assert list(blocks.history(9, StreamSpec(memory_seconds=6))) == [6, 7, 8]
    assert list(blocks.history(9, StreamSpec(memory_seconds=0))) == []
    assert list(blocks.history(2, StreamSpec(memory_seconds=6))) == [0, 1]


def test_time_stamps_in_floating_point_keep_whole_steps():
    assert session_blocks([(0.0, 0.6000000000000001)]).steps == {0: 3}
    assert session_blocks([(0.0, 0.5999999999)]).steps == {0: 3}
    assert session_blocks([(0.0, 0.59)]).steps == {0: 2}
