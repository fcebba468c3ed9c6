"""Frames come by time stamp: the same ones from every decoder, in every order."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from swift_plugin.errors import InputError
from swift_plugin.media import film_reel
from swift_plugin.media.decoders import PyAVReader, reader_class
from swift_plugin.media.session import Session, open_session

from .conftest import HEIGHT, WIDTH, make_film, number_picture, read_numbers, rotate_by_matrix

UNEVEN = [0, 40, 300, 350, 900, 1000, 1010, 2500, 2540]  # milliseconds


@pytest.fixture(params=["pyav", "torchcodec", "decord"])
def decoder(request: pytest.FixtureRequest) -> str:
    try:
        reader_class(request.param)
    except InputError as error:
        pytest.skip(str(error))
    return request.param


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each opening and each seek of the PyAV reader."""
    seen: list[int] = []
    restart = PyAVReader._restart
    monkeypatch.setattr(PyAVReader, "_restart", lambda self: (seen.append(1), restart(self))[1])
    return seen


def open_silent(path: Path, decoder: str = "pyav") -> Session:
    return open_session(film=path, silence=True, decoder=decoder)


def test_a_frame_stands_until_the_next_one(tmp_path: Path, decoder: str) -> None:
    path = make_film(tmp_path / "a.mp4", range(100), time_base=Fraction(1, 25))
    with open_silent(path, decoder) as session:
        assert session.spans == [(0.0, 4.0)]
        assert session.picture_size == (HEIGHT, WIDTH)
        frames = session.frames([0, 0.0399, 0.04, 0.0401, 1.0, 3.9599, 3.96, 3.9999])
        assert frames.dtype == np.uint8 and frames.shape == (8, HEIGHT, WIDTH, 3)
        assert read_numbers(frames) == [0, 0, 1, 1, 25, 98, 99, 99]
        assert np.abs(frames[4].astype(int) - number_picture(25)).mean() < 8


def test_uneven_frames(tmp_path: Path, decoder: str) -> None:
    path = make_film(tmp_path / "a.mp4", UNEVEN, gop=3)
    times = np.arange(0, 2540, 7) / 1000
    expected = [sum(stamp / 1000 <= seconds for stamp in UNEVEN) - 1 for seconds in times]
    with open_silent(path, decoder) as session:
        assert read_numbers(session.frames(times)) == expected


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_any_order_gives_the_same_frames(
    tmp_path: Path, decoder: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suffix == ".ts" and decoder != "pyav":
        pytest.skip(f"{decoder} refuses MPEG-TS")
    monkeypatch.setattr(film_reel, "CACHE_BYTES", 0)
    path = make_film(tmp_path / f"a{suffix}", range(0, 8000, 40), gop=10)
    numbers = np.random.default_rng(0).integers(0, 200, 60)
    with open_silent(path, decoder) as session:
        assert [read_numbers(session.frames([n / 25 + 0.01]))[0] for n in numbers] == numbers.tolist()
        assert read_numbers(session.frames(numbers / 25 + 0.02)) == numbers.tolist()


@pytest.mark.parametrize("suffix", [".ts", ".mkv"])
def test_a_film_that_does_not_begin_at_zero(tmp_path: Path, decoder: str, suffix: str) -> None:
    """0 s is the first time stamp of the file, here that of the picture."""
    path = make_film(tmp_path / f"a{suffix}", range(5000, 9000, 40))
    if suffix == ".ts" and decoder != "pyav":
        with open_silent(path, decoder) as session, pytest.raises(InputError, match=f"a.ts: {decoder} is not known"):
            session.frames([0.0])
        return
    with open_silent(path, decoder) as session:
        assert session.spans[0][0] == 0.0
        assert read_numbers(session.frames([3.961, 1.001, 3.001, 0.041, 0.001])) == [99, 25, 75, 1, 0]


@pytest.mark.parametrize(
    ("matrix", "turns"),
    [((0, 1, -1, 0), -1), ((-1, 0, 0, -1), 2), ((0, -1, 1, 0), 1)],
    ids=["clockwise", "upside_down", "counter_clockwise"],
)
def test_rotation_is_applied(tmp_path: Path, decoder: str, matrix: tuple[int, ...], turns: int) -> None:
    """(0, 1, -1, 0) takes right to down: a quarter turn clockwise, the matrix of a telephone held upright."""
    plain = make_film(tmp_path / "plain.mp4", range(10), time_base=Fraction(1, 25))
    turned = rotate_by_matrix(make_film(tmp_path / "a.mp4", range(10), time_base=Fraction(1, 25)), *matrix)
    if decoder == "decord" and turns != 2:
        with open_silent(turned, decoder) as session, pytest.raises(InputError, match="decord cannot turn"):
            session.frames([0.0])
        return
    with open_silent(plain, decoder) as session:
        expected = np.stack([np.rot90(frame, turns) for frame in session.frames([0.2, 0.32])])
    with open_silent(turned, decoder) as session:
        frames = session.frames([0.2, 0.32])
        assert session.picture_size == frames.shape[1:3] == expected.shape[1:3]
        assert np.abs(frames.astype(int) - expected).mean() < 3


def test_a_mirrored_film_is_refused(tmp_path: Path) -> None:
    path = rotate_by_matrix(make_film(tmp_path / "a.mp4", range(3), time_base=Fraction(1, 25)), -1, 0, 0, 1)
    with pytest.raises(InputError, match="mirrors"):
        open_silent(path)


def test_going_forward_never_seeks(tmp_path: Path, restarts: list[int]) -> None:
    path = make_film(tmp_path / "a.mp4", range(250), time_base=Fraction(1, 25), gop=5)
    with open_silent(path) as session:
        for step in range(20):
            session.frames([0.5 * step, 0.5 * step + 0.3])
        assert len(restarts) == 1
        session.frames([0.1])
        assert len(restarts) == 2
        session.frames([8.9])
        assert len(restarts) == 3


def test_asking_again_decodes_nothing(tmp_path: Path, restarts: list[int]) -> None:
    path = make_film(tmp_path / "a.mp4", range(100), time_base=Fraction(1, 25))
    with open_silent(path) as session:
        for steps in range(1, 11):  # a block looked at step by step
            session.frames([0.2 * step for step in range(steps)])
        assert len(restarts) == 1


def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film_reel, "CACHE_BYTES", 3 * 3 * HEIGHT * WIDTH)
    path = make_film(tmp_path / "a.mp4", range(50), time_base=Fraction(1, 25))
    with open_silent(path) as session:
        assert read_numbers(session.frames([n / 25 for n in range(50)])) == list(range(50))
        assert len(session._reel._cache) == 3


def test_no_times_give_no_frames(tmp_path: Path) -> None:
    path = make_film(tmp_path / "a.mp4", range(5), time_base=Fraction(1, 25))
    with open_silent(path) as session:
        assert session.frames([]).shape == (0, HEIGHT, WIDTH, 3)


@pytest.mark.shared_data
def test_a_real_film_gives_the_same_frames_everywhere(shared_data, decoder: str) -> None:
    """The reference is a plain decode from the first frame on."""
    import av

    path = shared_data("video/googlework_short.mp4")
    with av.open(str(path)) as container:
        frames = (frame for frame in container.decode(video=0) if frame.time < 8)
        decoded = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in frames]
    times = [0.9, 1.0, 3.0, 2.5, 7.5, 4.2]
    with open_session(film=path, decoder=decoder) as session:
        frames = session.frames(times)
    for seconds, frame in zip(times, frames):
        expected = [picture for time, picture in decoded if time <= seconds][-1]
        assert np.abs(frame.astype(int) - expected).mean() < 1
