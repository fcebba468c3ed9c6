"""A turn: one stretch of time in which one person speaks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from swift_plugin.errors import InputError


@dataclass(frozen=True)
class Turn:
    """`speaker` speaks in [start, end), in seconds of the session.

    A turn of no length (start == end) is allowed, because annotation tools write such, and says nothing.

    Raises:
        InputError: a time that is no finite number or negative, an end before the start, an empty speaker.
    """

    start: float
    end: float
    speaker: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise InputError(f"start={self.start} end={self.end} are not both finite; give seconds")
        if self.start < 0:
            raise InputError(f"start={self.start} is negative; seconds count from the start of the session")
        if self.end < self.start:
            raise InputError(f"end={self.end} is before start={self.start}; correct one of them")
        if not self.speaker:
            raise InputError("the speaker is empty; name the person who speaks")


def merge_turns(turns: Iterable[Turn]) -> list[Turn]:
    """Join what one speaker says at overlapping or adjacent times, so that no time is counted twice.

    Returns:
        The merged turns in order of time, without turns of no length.
    """
    from pyannote.core import Annotation, Segment  # loads pandas

    records = ((Segment(turn.start, turn.end), number, turn.speaker) for number, turn in enumerate(turns))
    merged = Annotation.from_records(record for record in records if record[0]).support()
    return [Turn(segment.start, segment.end, speaker) for segment, _, speaker in merged.itertracks(yield_label=True)]


def speaker_seconds(turns: Iterable[Turn]) -> dict[str, float]:
    """Seconds of speech of each speaker, the one who speaks longest first."""
    seconds: dict[str, float] = {}
    for turn in merge_turns(turns):
        seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + turn.end - turn.start
    return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))
