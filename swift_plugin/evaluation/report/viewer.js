"use strict";
// Replays truth and forecasts beside the film. What the bytes mean stands in replay.py.
(() => {
  const STEP = 0.2, HORIZONS = 10, NAMES = ["nobody", "self", "other"];
  const NOBODY = 1, SELF = 2, OTHER = 4, ANCHOR = 8;
  const byId = (id) => document.getElementById(id);
  const content = JSON.parse(byId("replay").textContent);
  const media = byId("media");
  const overview = byId("overview"), timeline = byId("timeline");
  let session = null, time = 0, playing = false, clockStart = 0, lead = 1, overviewPicture = null;
  let mediaFails = false, ownSeek = false;

  function bytes(text) {
    const raw = atob(text), result = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k++) result[k] = raw.charCodeAt(k);
    return result;
  }

  // A session's bytes are decoded when it is shown for the first time.
  function load(packed) {
    if (packed.steps) return packed;
    packed.steps = bytes(packed.truth);
    packed.forecasts = packed.runs.map(bytes);
    packed.rowOf = new Int32Array(packed.steps.length).fill(-1);
    let row = 0;
    packed.steps.forEach((step, k) => { if (step & ANCHOR) packed.rowOf[k] = row++; });
    packed.truth = packed.runs = null;
    return packed;
  }

  const firstTime = () => (session.first + 1) * STEP;
  const lastTime = () => (session.first + session.steps.length) * STEP;
  const hasMedia = () => media !== null && !mediaFails && session.name === content.media_session;
  const stepAt = (seconds) => Math.floor(seconds / STEP + 1e-6);
  // The anchor at step i has seen steps 0..i, so at t seconds the newest one is the step that ended last.
  const anchorStep = () => stepAt(time) - 1;
  const truthAt = (step) => {
    const bits = session.steps[step - session.first];
    return bits === undefined ? 0 : bits & 7;
  };

  // [nobody, self, other] in 0..1 of horizon 0..9 of the anchor at a step; null where none was made.
  function forecastAt(run, step, horizon) {
    const row = session.rowOf[step - session.first];
    if (row === undefined || row < 0) return null;
    const place = (row * HORIZONS + horizon) * 2, data = session.forecasts[run];
    return [Math.max(0, 255 - data[place] - data[place + 1]) / 255, data[place] / 255, data[place + 1] / 255];
  }

  function state() {
    const step = anchorStep(), ahead = [...Array(HORIZONS).keys()];
    return {
      session: session.name, time, step, playing,
      truth: ahead.map((h) => NAMES.filter((_, c) => truthAt(step + 1 + h) & (1 << c))),
      forecasts: content.runs.map((_, run) => {
        const rows = ahead.map((h) => forecastAt(run, step, h));
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

  // ---- canvases
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  function prepare(canvas) {
    const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = Number(canvas.dataset.height);
    if (canvas.width !== Math.round(width * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = height + "px";
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    return { context, width, height };
  }

  // One pass over the session for each width and theme; a frame only copies the picture.
  function paintOverview(width, height) {
    const picture = document.createElement("canvas"), scale = window.devicePixelRatio || 1;
    picture.width = Math.round(width * scale);
    picture.height = Math.round(height * scale);
    const context = picture.getContext("2d"), steps = session.steps, half = height / 2;
    const tints = { self: color("self"), other: color("other"), grid: color("grid") };
    context.scale(scale, scale);
    for (let x = 0; x < width; x++) {
      const from = Math.floor(x * steps.length / width);
      const to = Math.max(from + 1, Math.floor((x + 1) * steps.length / width));
      let self = 0, other = 0, known = 0;
      for (let k = from; k < to; k++) {
        if (steps[k] & SELF) self++;
        if (steps[k] & OTHER) other++;
        if (steps[k] & 7) known++;
      }
      const count = to - from, full = half - 3;
      context.fillStyle = tints.self;
      context.fillRect(x, half - 1 - full * self / count, 1, full * self / count);
      context.fillStyle = tints.other;
      context.fillRect(x, half + 1, 1, full * other / count);
      if (!known) {
        context.fillStyle = tints.grid;
        context.fillRect(x, 0, 1, height);
      }
    }
    return picture;
  }

  function drawOverview() {
    const { context, width, height } = prepare(overview);
    overviewPicture ??= paintOverview(width, height);
    context.drawImage(overviewPicture, 0, 0, width, height);
    const x = (time / STEP - session.first) / session.steps.length * width;
    context.fillStyle = color("ink");
    context.fillRect(Math.min(width - 2, Math.max(0, x - 1)), 0, 2, height);
  }

  const pixelsPerStep = () => (timeline.clientWidth < 560 ? 6.5 : 8);
  const nowAt = () => Math.round(timeline.clientWidth * 0.6);
  const timeAtX = (x) => time + (x - nowAt()) / pixelsPerStep() * STEP;
  const stepX = (step) => nowAt() + (step - time / STEP) * pixelsPerStep();

  function drawTimeline() {
    const { context, width, height } = prepare(timeline);
    const size = pixelsPerStep(), now = nowAt(), current = anchorStep();
    const first = Math.floor(time / STEP - now / size) - 1, last = Math.ceil(time / STEP + (width - now) / size) + 1;
    const ink = Object.fromEntries(["card", "ink", "soft", "grid", "rule", "against"].map((name) => [name, color(name)]));
    context.font = "11px system-ui, sans-serif";

    context.fillStyle = ink.grid;
    context.fillRect(stepX(current + 1), 0, size * HORIZONS, height - 20);
    const every = size * 5 < 36 ? 2 : 1;
    for (let second = Math.ceil(first * STEP); second <= last * STEP; second++) {
      if (second % every || second < 0) continue;
      const x = stepX(second / STEP);
      context.fillStyle = ink.rule;
      context.fillRect(x, 0, 1, height - 20);
      context.fillStyle = ink.soft;
      context.fillText(clock(second, 0), x - 9, height - 6);
    }
    [[1, SELF, "self"], [2, OTHER, "other"]].forEach(([c, bit, name], lane) => {
      const top = 8 + lane * 74, base = top + 66, full = 44;
      const tint = color(name);
      for (let step = first; step <= last; step++) {
        const x = Math.round(stepX(step)), wide = Math.round(stepX(step + 1)) - x; // whole pixels leave no seams
        if (truthAt(step) & bit) {
          context.fillStyle = tint;
          context.fillRect(x, top, wide, 16);
        } else if (!truthAt(step) && step >= session.first) {
          context.fillStyle = ink.rule;
          context.fillRect(x, top + 7, wide, 2);
        }
        const ahead = step > current ? step - current - 1 : lead;
        if (ahead >= HORIZONS) continue;
        content.runs.forEach((_, run) => {
          const forecast = forecastAt(run, step - ahead - 1, ahead);
          if (!forecast) return;
          const y = base - forecast[c] * full;
          if (run === 0) {
            context.globalAlpha = 0.38;
            context.fillStyle = tint;
            context.fillRect(x, y, wide, base - y);
            context.globalAlpha = 1;
          }
          context.fillStyle = run === 0 ? tint : ink.against;
          context.fillRect(x, y - 1, wide, 2);
        });
      }
      context.fillStyle = ink.rule;
      context.fillRect(0, base, width, 1);
      context.fillStyle = ink.card;
      context.fillRect(0, top + 18, 42, 15);
      context.fillStyle = tint;
      context.fillText(name, 6, top + 29);
    });
    context.fillStyle = ink.ink;
    context.fillRect(now - 1, 0, 2, height - 20);
  }

  function clock(seconds, digits) {
    const whole = Math.floor(seconds + 1e-6), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
    const rest = (seconds - hours * 3600 - minutes * 60 + 1e-9).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
    return (hours ? hours + ":" + String(minutes).padStart(2, "0") : minutes) + ":" + rest;
  }

  function draw() {
    byId("clock").textContent = clock(Math.floor(time * 10 + 1e-6) / 10, 1);
    drawOverview();
    drawTimeline();
    drawPanels();
  }

  // ---- time
  function moveTo(seconds) {
    time = Math.min(Math.max(seconds, Math.min(firstTime(), hasMedia() ? 0 : Infinity)), lastTime());
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
    if (time >= lastTime()) setPlaying(false);
    draw();
    if (playing) requestAnimationFrame(tick);
  }

  function show(index) {
    if (playing) setPlaying(false);
    session = load(content.sessions[index]);
    byId("session").value = index;
    overviewPicture = null;
    if (media) media.parentElement.hidden = !hasMedia();
    jump(firstTime());
  }

  // "#session=NAME&t=SECONDS": a moment that a link can name.
  function follow() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (!wanted.has("t")) return;
    const index = content.sessions.findIndex((entry) => entry.name === wanted.get("session"));
    if (index >= 0 && content.sessions[index] !== session) show(index);
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
  onPointer(timeline, timeAtX);
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
