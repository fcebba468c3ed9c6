"""CSV: a header with the columns start, end and speaker, then one turn a line, in seconds."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from swift_plugin.errors import InputError
from swift_plugin.labels.files import read_text
from swift_plugin.labels.turns import Turn, merge_turns

_COLUMNS = ("start", "end", "speaker")


def read_csv(path: str | Path) -> list[Turn]:
    """Read turns; more columns than the three may follow in any order and are not looked at.

    Returns:
        Turns in order of time; overlapping turns of one speaker are merged.

    Raises:
        InputError: an unreadable file, a missing column, a line that is no turn, no line at all.
    """
    path = Path(path)
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""), skipinitialspace=True, strict=True)
    turns = []
    try:
        missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
        if missing:
            raise InputError(
                f"header {','.join(rows.fieldnames or ())!r} lacks {', '.join(missing)}; begin with start,end,speaker"
            )
        for row in rows:
            turns.append(_parse_row(row))
    except csv.Error as error:
        raise InputError(f"{path}, after line {rows.line_num}: {error}; close every quote") from None
    except InputError as error:
        # line_num is the line last read; 0 means that the file is empty
        raise InputError(f"{path}, line {max(rows.line_num, 1)}: {error}") from None
    if not turns:
        raise InputError(f"{path}: has a header and no turn; add lines of start,end,speaker")
    return merge_turns(turns)


def _parse_row(row: dict[str | None, str | list[str] | None]) -> Turn:
    if None in row or None in row.values():
        raise InputError("has not as many fields as the header; put a name with a comma into quotes")
    try:
        start, end = float(row["start"]), float(row["end"])
    except ValueError:
        raise InputError(
            f"start {row['start']!r}, end {row['end']!r} are not numbers; give seconds such as 1.25"
        ) from None
    return Turn(start, end, row["speaker"].strip())
