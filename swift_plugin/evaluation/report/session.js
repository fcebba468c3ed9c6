"use strict";
// One session of the replay. What the bytes mean stands in replay.py.
const STEP = 0.2, HORIZONS = 10, NAMES = ["nobody", "self", "other"];
const SELF = 2, OTHER = 4, KNOWN = 7, ANCHOR = 8;

class Session {
  constructor({ name, first, truth, runs }) {
    this.name = name;
    this.first = first;
    this.steps = Session.bytes(truth);
    this.forecasts = runs.map(Session.bytes);
    this.rowOf = new Int32Array(this.steps.length).fill(-1);
    let row = 0;
    this.steps.forEach((step, k) => { if (step & ANCHOR) this.rowOf[k] = row++; });
  }

  static bytes(text) {
    const raw = atob(text), result = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k++) result[k] = raw.charCodeAt(k);
    return result;
  }

  // Seconds at which the first and the last step end.
  get start() { return (this.first + 1) * STEP; }
  get end() { return (this.first + this.steps.length) * STEP; }

  // The bits of a step; 0 where the truth is unknown.
  truthAt(step) {
    const bits = this.steps[step - this.first];
    return bits === undefined ? 0 : bits & KNOWN;
  }

  // [nobody, self, other] in 0..1 at horizon 0..9 of the anchor at a step; null where none was made.
  forecastAt(run, step, horizon) {
    const row = this.rowOf[step - this.first];
    if (row === undefined || row < 0) return null;
    const place = (row * HORIZONS + horizon) * 2, data = this.forecasts[run];
    return [Math.max(0, 255 - data[place] - data[place + 1]) / 255, data[place] / 255, data[place + 1] / 255];
  }
}

const stepAt = (seconds) => Math.floor(seconds / STEP + 1e-6);
// The anchor at step i has seen steps 0..i, so at t seconds the newest one is the step that ended last.
const anchorStepAt = (seconds) => stepAt(seconds) - 1;

// 1:02:03.4
function clock(seconds, digits) {
  const whole = Math.floor(seconds + 1e-6), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  const rest = (seconds - hours * 3600 - minutes * 60 + 1e-9).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return (hours ? hours + ":" + String(minutes).padStart(2, "0") : minutes) + ":" + rest;
}
