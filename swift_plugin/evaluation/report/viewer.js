"use strict";
// Replays truth and forecasts beside the film.
(() => {
  const byId = (id) => document.getElementById(id);
  const content = JSON.parse(byId("replay").textContent);
  const media = byId("media");
  const overview = byId("overview"), timeline = byId("timeline");
  const opened = [];
  let session = null, time = 0, playing = false, clockStart = 0, lead = 1, overviewPicture = null;
  let mediaFails = false, ownSeek = false;

  const hasMedia = () => media !== null && !mediaFails && session.name === content.media_session;

  function state() {
    const step = anchorStepAt(time), ahead = [...Array(HORIZONS).keys()];
    return {
      session: session.name, time, step, playing,
      truth: ahead.map((h) => NAMES.filter((_, c) => session.truthAt(step + 1 + h) & (1 << c))),
      forecasts: content.runs.map((_, run) => {
        const rows = ahead.map((h) => session.forecastAt(run, step, h));
        return rows[0] ? rows : null;
      }),
    };
  }

  // ---- the forecast of this moment, as a table
  const cells = [];
  function buildPanels() {
    content.runs.forEach((name, run) => {
      const panel = document.createElement("div");
      panel.className = "panel";
      const heading = document.createElement("h4"), table = document.createElement("table");
      table.className = "forecast";
      const row = (title, kind) => {
        const line = table.insertRow();
        line.className = kind;
        const head = document.createElement("th");
        head.scope = "row";
        head.textContent = title;
        line.append(head);
        return line;
      };
      const head = row("", "ahead");
      for (let h = 1; h <= HORIZONS; h++) {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = "+" + (h * STEP).toFixed(1);
        head.append(cell);
      }
      const came = row("Came", "came"), rows = {};
      for (const c of [1, 2, 0]) rows[c] = row(NAMES[c][0].toUpperCase() + NAMES[c].slice(1), NAMES[c]);
      const entry = { heading, name, came: [], bars: { 0: [], 1: [], 2: [] } };
      for (let h = 0; h < HORIZONS; h++) {
        entry.came.push(came.insertCell());
        for (const c of [0, 1, 2]) {
          const cell = rows[c].insertCell();
          cell.append(document.createElement("i"), document.createElement("b"));
          entry.bars[c].push(cell);
        }
      }
      cells[run] = entry;
      panel.append(heading, table);
      byId("panels").append(panel);
    });
  }

  function drawPanels() {
    const now = state();
    cells.forEach((entry, run) => {
      const forecast = now.forecasts[run], title = content.runs.length > 1 ? entry.name + ": " : "";
      const moment = forecast ? `forecast at ${time.toFixed(1)} s` : "no forecast was made at this moment";
      entry.heading.textContent = title + moment;
      for (let h = 0; h < HORIZONS; h++) {
        const came = now.truth[h], both = came.includes("self") && came.includes("other");
        const who = both ? "both" : came[0] ?? "unknown";
        entry.came[h].className = "is-" + who;
        entry.came[h].textContent = { both: "s+o", self: "s", other: "o", nobody: "–", unknown: "?" }[who];
        entry.came[h].title = who;
        for (const c of [0, 1, 2]) {
          const cell = entry.bars[c][h], percent = forecast ? Math.round(forecast[h][c] * 100) : null;
          cell.firstChild.style.height = (percent ?? 0) + "%";
          cell.lastChild.textContent = percent ?? "";
          cell.className = came.includes(NAMES[c]) ? "hit" : "";
        }
      }
    });
  }

  function draw() {
    byId("clock").textContent = clock(Math.floor(time * 10 + 1e-6) / 10, 1);
    overviewPicture = drawOverview(overview, session, time, overviewPicture);
    drawTimeline(timeline, session, time, lead);
    drawPanels();
  }

  // ---- time
  function moveTo(seconds) {
    time = Math.min(Math.max(seconds, Math.min(session.start, hasMedia() ? 0 : Infinity)), session.end);
  }

  function jump(seconds) {
    moveTo(seconds);
    clockStart = performance.now() - time * 1000;
    if (hasMedia()) {
      ownSeek = true;
      media.currentTime = time;
    }
    draw();
  }

  function step(count) {
    jump((stepAt(time) + count) * STEP);
  }

  function setPlaying(on) {
    if (hasMedia()) {
      if (on) media.play().catch(() => showPlaying(false)); else media.pause();
    }
    clockStart = performance.now() - time * 1000;
    showPlaying(on);
  }

  function showPlaying(on) {
    if (on && !playing) requestAnimationFrame(tick);
    playing = on;
    byId("play").textContent = on ? "Pause" : "Play";
  }

  function tick() {
    if (!playing) return;
    moveTo(hasMedia() ? media.currentTime : (performance.now() - clockStart) / 1000);
    if (time >= session.end) setPlaying(false);
    draw();
    if (playing) requestAnimationFrame(tick);
  }

  function show(index) {
    if (playing) setPlaying(false);
    session = opened[index] ??= new Session(content.sessions[index]); // decoded when it is shown for the first time
    byId("session").value = index;
    overviewPicture = null;
    if (media) media.parentElement.hidden = !hasMedia();
    jump(session.start);
  }

  // "#session=NAME&t=SECONDS": a moment that a link can name.
  function follow() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (!wanted.has("t")) return;
    const index = content.sessions.findIndex((entry) => entry.name === wanted.get("session"));
    if (index >= 0 && content.sessions[index].name !== session.name) show(index);
    jump(Number(wanted.get("t")) || 0);
    byId("viewer").scrollIntoView();
  }

  // ---- wiring
  function onPointer(canvas, timeOf) {
    const go = (event) => jump(timeOf(event.clientX - canvas.getBoundingClientRect().left));
    canvas.addEventListener("click", go);
    if (canvas !== overview) return; // the other one moves under the pointer
    canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) go(event); });
  }

  function onKey(event) {
    const blocked = event.target.closest?.("select, input, textarea, .scroll, summary, a");
    if (blocked || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === " " && event.target.closest?.("button")) return;
    const size = event.shiftKey ? HORIZONS : 1;
    if (event.key === " ") setPlaying(!playing);
    else if (event.key === "ArrowLeft") step(-size);
    else if (event.key === "ArrowRight") step(size);
    else return;
    event.preventDefault();
    event.stopPropagation(); // a focused film would act on the key as well
  }

  [overview, timeline].forEach((canvas) => { canvas.dataset.height = canvas.getAttribute("height"); });
  content.sessions.forEach((entry, k) => byId("session").add(new Option(entry.name, k)));
  byId("session-label").hidden = content.sessions.length < 2;
  for (let h = 0; h < HORIZONS; h++) byId("lead").add(new Option(((h + 1) * STEP).toFixed(1) + " s", h));
  byId("lead").value = lead;
  byId("second-run").hidden = content.runs.length < 2;
  buildPanels();
  byId("play").addEventListener("click", () => setPlaying(!playing));
  byId("back").addEventListener("click", () => step(-1));
  byId("forth").addEventListener("click", () => step(1));
  byId("session").addEventListener("change", (event) => show(Number(event.target.value)));
  byId("lead").addEventListener("change", (event) => { lead = Number(event.target.value); draw(); });
  onPointer(overview, (x) => (session.first + x / overview.clientWidth * session.steps.length) * STEP);
  onPointer(timeline, (x) => time + secondsFromNow(x, timeline.clientWidth));
  document.addEventListener("keydown", onKey, true);
  if (media) {
    for (const name of ["play", "pause", "ended"]) {
      media.addEventListener(name, () => { if (hasMedia()) showPlaying(name === "play"); });
    }
    // Seeking by the film's own controls moves the time; our own seek must not, as a film may end before its session.
    media.addEventListener("seeked", () => {
      if (hasMedia() && !ownSeek) {
        moveTo(media.currentTime);
        draw();
      }
      ownSeek = false;
    });
    media.addEventListener("error", () => {
      mediaFails = true;
      byId("media-note").textContent += " It cannot be played here, so a clock runs in its place.";
    });
  }
  const repaint = () => { overviewPicture = null; draw(); };
  window.addEventListener("resize", repaint);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  window.addEventListener("hashchange", follow);
  const withMedia = content.sessions.findIndex((entry) => entry.name === content.media_session);
  show(Math.max(0, withMedia));
  follow();
  window.turnReport = { state, jump, show };
})();
