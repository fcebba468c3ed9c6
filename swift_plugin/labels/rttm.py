"""RTTM: one turn a line, `SPEAKER <recording> <channel> <start> <duration> <NA> <NA> <speaker> <NA> [<NA>]`."""

from __future__ import annotations

from pathlib import Path

from swift_plugin.errors import InputError
from swift_plugin.labels.files import read_text
from swift_plugin.labels.turns import Turn, merge_turns

# The other record types of NIST's RTTM (RT-09 evaluation plan, appendix A). They say nothing about turns.
_OTHER_TYPES = frozenset(
    "SEGMENT NOSCORE NO_RT_METADATA LEXEME NON-LEX NON-SPEECH FILLER EDIT IP SU CB A/P SPKR-INFO".split()
)
_MIN_FIELDS = 9  # the tenth, signal lookahead, was added later


def read_rttm(path: str | Path, *, recording: str | None = None) -> list[Turn]:
    """Read the turns of one recording.

    Args:
        recording: the recording (second field, pyannote's uri) to read. `None` takes the only one there is, whatever
            its name; the file's own name is never compared with it.

    Returns:
        Turns in order of time; overlapping turns of one speaker are merged.

    Raises:
        InputError: an unreadable file or line, no turn, a recording that is not there, several and none chosen.
    """
    path = Path(path)
    recordings: dict[str, list[Turn]] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        fields = line.split()
        if not fields or fields[0].startswith(";") or fields[0] in _OTHER_TYPES:
            continue
        try:
            turn = _parse_speaker(fields)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        recordings.setdefault(fields[1], []).append(turn)
    return merge_turns(recordings[_choose(path, list(recordings), recording)])


def _parse_speaker(fields: list[str]) -> Turn:
    if fields[0] != "SPEAKER":
        raise InputError(f"type {fields[0]!r} is not one of RTTM; a turn begins with SPEAKER")
    if len(fields) < _MIN_FIELDS:
        raise InputError(f"{len(fields)} fields instead of 9 or 10; write names without spaces and <NA> for none")
    try:
        start, duration = float(fields[3]), float(fields[4])
    except ValueError:
        raise InputError(f"start {fields[3]!r}, duration {fields[4]!r} are not numbers; give seconds") from None
    if duration < 0:
        raise InputError(f"duration {fields[4]} is negative; the fifth field is a duration, not an end")
    if fields[7] == "<NA>":
        raise InputError("the speaker is <NA>; name the person who speaks in the eighth field")
    return Turn(start, start + duration, fields[7])


def _choose(path: Path, found: list[str], asked: str | None) -> str:
    if not found:
        raise InputError(f"{path}: holds no SPEAKER line; give an RTTM file with turns")
    names = ", ".join(found)
    if asked is None and len(found) > 1:
        raise InputError(f"{path}: holds {len(found)} recordings; choose one with --recording: {names}")
    if asked is not None and asked not in found:
        raise InputError(f"{path}: recording {asked!r} is not in it; choose with --recording from: {names}")
    return found[0] if asked is None else asked
