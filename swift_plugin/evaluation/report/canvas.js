"use strict";
// The two canvases: the whole session, and the time around now.
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function prepare(canvas) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = Number(canvas.dataset.height);
  if (canvas.width !== Math.round(width * scale) || !canvas.style.height) {
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
function paintOverview(session, width, height) {
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
      if (steps[k] & KNOWN) known++;
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

// picture: of `paintOverview`, made where it is null; returns it for the next call.
function drawOverview(canvas, session, time, picture) {
  const { context, width, height } = prepare(canvas);
  picture ??= paintOverview(session, width, height);
  context.drawImage(picture, 0, 0, width, height);
  const x = (time / STEP - session.first) / session.steps.length * width;
  context.fillStyle = color("ink");
  context.fillRect(Math.min(width - 2, Math.max(0, x - 1)), 0, 2, height);
  return picture;
}

const pixelsPerStep = (width) => (width < 560 ? 6.5 : 8);
const nowAt = (width) => Math.round(width * 0.6);
const secondsFromNow = (x, width) => (x - nowAt(width)) / pixelsPerStep(width) * STEP;

// Only the steps that are visible are drawn. lead: the horizon, 0..9, of what is shown left of now.
function drawTimeline(canvas, session, time, lead) {
  const { context, width, height } = prepare(canvas);
  const size = pixelsPerStep(width), now = nowAt(width), current = anchorStepAt(time);
  const stepX = (step) => now + (step - time / STEP) * size;
  const first = Math.floor(time / STEP - now / size) - 1, last = Math.ceil(time / STEP + (width - now) / size) + 1;
  const inks = ["card", "ink", "soft", "grid", "rule", "against"];
  const ink = Object.fromEntries(inks.map((name) => [name, color(name)]));
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
      if (session.truthAt(step) & bit) {
        context.fillStyle = tint;
        context.fillRect(x, top, wide, 16);
      } else if (!session.truthAt(step) && step >= session.first) {
        context.fillStyle = ink.rule;
        context.fillRect(x, top + 7, wide, 2);
      }
      const ahead = step > current ? step - current - 1 : lead;
      if (ahead >= HORIZONS) continue;
      session.forecasts.forEach((_, run) => {
        const forecast = session.forecastAt(run, step - ahead - 1, ahead);
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
