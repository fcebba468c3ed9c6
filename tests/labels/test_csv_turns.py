from __future__ import annotations

import pytest

from swift_plugin.errors import InputError
from swift_plugin.labels.csv_turns import read_csv
from swift_plugin.labels.turns import Turn


@pytest.fixture
def table(tmp_path):
    def write(text: str):
        path = tmp_path / "talk.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_reads_merges_and_sorts(table):
    text = 'text,start,end,speaker\n"yes, no",2,3.5, ann \nhm,3,4,ann\n,0.25,0.5,"Lee, Bo"\n'
    assert read_csv(table(text)) == [Turn(0.25, 0.5, "Lee, Bo"), Turn(2.0, 4.0, "ann")]


def test_byte_order_mark_of_spreadsheets(table):
    assert read_csv(table("\ufeffstart,end,speaker\r\n0,1,é\r\n")) == [Turn(0.0, 1.0, "é")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "talk.csv, line 1: header '' lacks start, end, speaker; begin with start,end,speaker"),
        ("0,1,a\n", "line 1: header '0,1,a' lacks start, end, speaker"),
        ("start;end;speaker\n0;1;a\n", "line 1: header 'start;end;speaker' lacks"),
        ("start,end,who\n0,1,a\n", "header 'start,end,who' lacks speaker"),
        ("start,end,speaker\n", "has a header and no turn"),
        ("start,end,speaker\n0,1,a\n1,x,a\n", "line 3: start '1', end 'x' are not numbers"),
        ("start,end,speaker\n0,1,a\n2,1,a\n", "line 3: end=1.0 is before start=2.0"),
        ("start,end,speaker\n0,1\n", "line 2: has not as many fields as the header"),
        ("start,end,speaker\n0,1,a,b\n", "line 2: has not as many fields as the header"),
        ("start,end,speaker\n0,1, \n", "line 2: the speaker is empty"),
        ("start,end,speaker\n0,inf,a\n", "line 2: start=0.0 end=inf are not both finite"),
        ('start,end,speaker\n0,1,"a\n', "talk.csv, after line 1: unexpected end of data; close every quote"),
    ],
)
def test_bad_files(table, text, message):
    with pytest.raises(InputError, match=message) as error:
        read_csv(table(text))
    assert "\n" not in str(error.value)
