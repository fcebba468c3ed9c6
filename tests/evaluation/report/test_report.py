"""`swift-turn report` from the command line to what a browser makes of the page."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from swift_plugin.cli import main
from swift_plugin.evaluation.evaluate import with_probabilities
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.report.media import load_media
from swift_plugin.evaluation.report.minutes import rank_minutes

NASTY = "</script><b>a & b</b> 'é'"


def conversation(seed: int, pieces: int = 60) -> str:
    random = np.random.default_rng(seed)
    parts = zip(random.choice(list("-sob?"), pieces, p=[0.3, 0.3, 0.3, 0.08, 0.02]), random.integers(2, 9, pieces))
    return "".join(letter * int(count) for letter, count in parts)


@pytest.fixture
def folder(tmp_path, monkeypatch, predictions_of, targets_of):
    """Two runs on three sessions, one of them with a name that is HTML, and the targets of another one."""
    made = predictions_of(*(conversation(seed) for seed in range(3)))
    random = np.random.default_rng(0)
    for name in ("run.npz", "other.parquet"):
        Predictions(
            probabilities=random.dirichlet(np.ones(3), made.probabilities.shape[:2]),
            target_index=made.target_index,
            session=made.session,
            session_names=["talk", NASTY, "third"],
            targets=made.targets,
        ).save(tmp_path / name)
    np.save(tmp_path / "train.npy", targets_of(conversation(20)))
    (tmp_path / "film.mp4").write_bytes(b"no film")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def report(line: str) -> str:
    assert main(f"report --predictions run.npz --output report.html --resamples 20 {line}".split()) == 0
    return Path("report.html").read_text(encoding="utf-8")


def cells(page: str) -> dict[str, float]:
    """name -> value of every <data> element; one that occurs twice has to be the same."""
    found: dict[str, float] = {}
    for value, name in re.findall(r'<data value="([^"]+)" data-name="([^"]+)">', page):
        assert found.setdefault(html.unescape(name), float(value)) == float(value)
    return found


def test_the_numbers_are_those_of_evaluate(folder):
    page = report("--against other.parquet --baselines train.npy")
    line = "evaluate run.npz --against other.parquet --baselines train.npy --output out.json --resamples 20"
    assert main(line.split()) == 0
    content, found = json.loads((folder / "out.json").read_text()), cells(page)
    sources = {"these predictions": content["values"], "the other file": content["against"]["values"]}
    sources |= {name: entry["values"] for name, entry in content["baselines"].items()}
    sources["difference"] = {name: entry[0] for name, entry in content["against"]["difference"].items()}
    assert len(sources) == 8
    seen = set()
    for place, value in found.items():
        name, key = place.split("/")
        seen.add(name)
        assert value == sources[name][key], place
    assert seen == set(sources)
    for name in ("mAP", "AP_self_0.4s", "ece_2.0s", "onset_self_AP", "overlap_ROC"):
        assert f"these predictions/{name}" in found
    value, low, high = content["intervals"]["mAP"]
    assert f'<p class="big">{value:.3f}</p><p class="interval">95 %: <span>{low:.3f} … {high:.3f}</span>' in page
    value, low, high = content["against"]["difference"]["log_loss_0.4s"]
    shown = f">{value:+.3f}</data>".replace("-", "−")
    assert shown in page and f"<small>{low:+.3f} … {high:+.3f}</small>".replace("-", "−") in page


def test_the_page_needs_nothing_from_outside_and_escapes_names(folder):
    page = report("--against other.parquet")
    assert not re.search(r"https?://|@import|url\(|<link|<img|<iframe", page)
    assert page.count("<script") == page.count("</script>") == 2  # the name of a session ends neither
    assert "<b>a & b</b>" not in page and html.escape(NASTY) in page
    assert "$" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # the template is filled


def test_small_media_are_inside_and_large_ones_beside(folder):
    page = report("--film film.mp4 --session talk")
    assert f'<video id="media" src="data:video/mp4;base64,{base64.b64encode(b"no film").decode()}"' in page
    (folder / "pages").mkdir()
    (folder / "a b.wav").write_bytes(b"12345")
    inside, beside = (
        load_media(Path("a b.wav"), film=False, output=Path("pages/report.html"), limit=limit) for limit in (5, 4)
    )
    assert inside.source.startswith("data:audio/wav;base64,")
    assert beside.source == "../a%20b.wav" and "../a b.wav" in beside.note


def test_minutes_are_ranked_by_log_loss(predictions_of):
    # Each minute is silent; the forecast says self with 0.9, 0.1 and 0.5, so the log loss is -log of what remains.
    made = predictions_of("-" * 920, p_self=[[0.9] * 300 + [0.1] * 300 + [0.5] * 320])
    minutes = rank_minutes([made, with_probabilities(made, np.full((920, 10, 3), 1 / 3))])
    assert [minute.start for minute in minutes] == [0, 120, 60]  # the last 20 steps are too few for a minute
    expected = [-np.log(0.1), -np.log(0.5), -np.log(0.9)]
    assert [minute.log_loss[0] for minute in minutes] == pytest.approx(expected, rel=1e-5)
    assert [minute.log_loss[1] for minute in minutes] == pytest.approx([np.log(3)] * 3, rel=1e-5)
    assert [minute.right for minute in minutes] == [0, 1, 1]  # of equals, nobody is the first


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--output out.html", "--predictions"),
        ("--predictions none.npz --output out.html", "none.npz: no such file"),
        ("--predictions run.npz --output out.pdf", "out.pdf: a page ends in .html"),
        ("--predictions run.npz --output nowhere/out.html", "folder nowhere does not exist"),
        ("--predictions run.npz --output here.html", "here.html exists"),
        ("--predictions run.npz --output out.html --resamples 0", "--resamples 0"),
        ("--predictions run.npz --output out.html --session talk", "--session talk: says whose film"),
        ("--predictions run.npz --output out.html --film film.mp4", "holds 3 sessions"),
        ("--predictions run.npz --output out.html --film film.mp4 --session x", "--session x: not in run.npz"),
        ("--predictions run.npz --output out.html --film film.mp4 --audio film.mp4", "not allowed with"),
        ("--predictions run.npz --output out.html --audio film.mp4 --session talk", "browsers do not play '.mp4'"),
        ("--predictions run.npz --output out.html --film none.mp4 --session talk", "none.mp4: no such file"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, capsys, line, message):
    (folder / "here.html").touch()
    before = sorted(path.name for path in folder.iterdir())
    try:
        code = main(["report", *line.split()])
    except SystemExit as stop:  # of the parser
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and message in error and error.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.fixture
def browse(tmp_path):
    """Opens the page at a fragment, runs JavaScript in it, and gives what that returns."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine")

    def run(page: str, fragment: str, script: str):
        probe = (
            '<script>{const say = (value) => parent.postMessage(JSON.stringify(value), "*");'
            f"try {{ say((() => {{{script}}})()); }} catch (error) {{ say(String(error)); }}}}</script>"
        )
        (tmp_path / "probe.html").write_text(page.replace("</body>", probe + "</body>"), encoding="utf-8")
        frame = tmp_path / "frame.html"  # a window of Chromium is never narrower than 500 pixels, a frame can be
        frame.write_text(
            '<pre id="probe"></pre><script>onmessage = (event) => { probe.textContent = event.data; };</script>'
            f'<iframe src="probe.html#{html.escape(fragment)}" style="width:360px;height:800px;border:0"></iframe>',
            encoding="utf-8",
        )
        switches = (
            "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
            "disable-component-update disable-sync"
        )
        command = [chromium, *(f"--{name}" for name in switches.split()), f"--user-data-dir={tmp_path / 'profile'}"]
        done = subprocess.run(
            [*command, "--virtual-time-budget=5000", "--dump-dom", frame.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
        )
        shown = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
        assert shown and shown[1], done.stderr[-2000:]
        return json.loads(html.unescape(shown[1]))

    return run


def expected_forecasts(step: int, session: int) -> list[np.ndarray]:
    rows = []
    for name in ("run.npz", "other.parquet"):
        predictions = Predictions.load(Path(name))
        row = np.flatnonzero((predictions.session == session) & (predictions.target_index == step))
        rows.append(predictions.probabilities[row[0]])
    return rows


def test_the_viewer_shows_what_was_said_at_a_moment(folder, browse):
    page = report("--against other.parquet")
    states = browse(
        page,
        "session=third&t=20.05",
        """
        const key = (name, shift) => document.dispatchEvent(
            new KeyboardEvent("keydown", { key: name, shiftKey: !!shift, bubbles: true, cancelable: true }));
        const states = [turnReport.state()];
        for (const press of [["ArrowRight"], ["ArrowRight", true], ["ArrowLeft"]]) {
            key(...press);
            states.push(turnReport.state());
        }
        const shown = [...document.querySelectorAll(".forecast .self b")].map((cell) => cell.textContent);
        key(" ");
        const plays = turnReport.state().playing;
        const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
        return { states, shown, plays, wide, width: window.innerWidth };
        """,
    )
    predictions = Predictions.load(folder / "run.npz")
    assert [state["step"] for state in states["states"]] == [99, 100, 110, 109]
    for state in states["states"]:
        assert state["session"] == "third"
        expected = expected_forecasts(state["step"], session=2)
        assert np.array(state["forecasts"]) == pytest.approx(np.stack(expected), abs=1.01 / 255)
        row = np.flatnonzero((predictions.session == 2) & (predictions.target_index == state["step"]))[0]
        for names, target in zip(state["truth"], predictions.targets[row]):
            known = not np.isnan(target[0])
            assert names == [n for n, y in zip(("nobody", "self", "other"), target) if known and y >= 0.5]
    percent = np.concatenate([rows[:, 1] for rows in expected_forecasts(109, session=2)]) * 100
    assert [int(text) for text in states["shown"]] == pytest.approx(percent.tolist(), abs=1)
    assert states["plays"] is True  # without a film a clock runs
    assert (states["width"], states["wide"]) == (360, 0)  # at 360 pixels the page itself does not scroll sideways


def test_links_of_the_minutes_lead_to_them(folder, browse):
    page = report("")
    first = browse(
        page,
        "",
        """
        const link = document.querySelector("#minutes a");
        location.hash = link.getAttribute("href");
        window.dispatchEvent(new HashChangeEvent("hashchange"));
        const before = turnReport.state();
        turnReport.jump(1e9);
        return { text: link.textContent, session: before.session, time: before.time, last: turnReport.state().time };
        """,
    )
    assert first["text"].startswith(first["session"] + ", ")
    minute, second = first["text"].rsplit(", ", 1)[1].split(":")
    assert first["time"] == pytest.approx(max(60 * int(minute) + int(second), 0.2))  # the first forecast is at 0.2 s
    assert first["last"] < 100  # never beyond the session
