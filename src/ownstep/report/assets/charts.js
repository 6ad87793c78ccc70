/* Draws every figure of the page with uPlot from the data in #charts: zoom by dragging, values by hovering. */
"use strict";
const Charts = (() => {
  const all = [];
  const tip = document.getElementById("tip");
  let printing = false;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = () => !printing && css("color-scheme") === "dark";
  const colour = (line) => line.colour[dark() ? 1 : 0];
  const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  function text(v) {
    if (v == null || Number.isNaN(v)) return "–";
    if (v === 0) return "0";
    const size = Math.abs(v);
    if (Number.isInteger(v) && size < 1e7) return v.toLocaleString("en-US").replace("-", "−");
    if (size < 1e-3 || size >= 1e7) return v.toExponential(2).replace("-", "−").replace("e−", "e−").replace("e+", "e");
    return String(Number(v.toPrecision(4))).replace("-", "−");
  }

  function tickText(v) {
    if (v == null) return "";
    const power = Math.log10(Math.abs(v));
    if (v !== 0 && (power <= -3 || power >= 5) && Math.abs(power - Math.round(power)) < 1e-9)
      return "10" + String(Math.round(power)).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
    return text(v);
  }

  const decade = (v) => (Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9 ? v : null);

  function make(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    Object.assign(node, properties);
    node.append(...children);
    return node;
  }

  function swatch(line) {
    const ns = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(ns, "svg"), path = document.createElementNS(ns, "path");
    svg.setAttribute("viewBox", "0 0 27 13");
    path.setAttribute("d", "M0 6.5H27");
    path.setAttribute("stroke", colour(line));
    path.setAttribute("stroke-width", "2.6");
    path.setAttribute("stroke-dasharray", line.dash.join(" "));
    svg.append(path);
    return svg;
  }

  class Chart {
    constructor(figure, spec) {
      Object.assign(this, { figure, spec, view: 0, hidden: new Set(), log: null });
      this.host = figure.querySelector(".plot");
      this.controls();
      this.draw();
      this.width = this.host.clientWidth;
      new ResizeObserver(() => this.fit()).observe(this.host);
      figure.querySelector(".data").addEventListener("toggle", () => this.table());
    }

    get lines() { return this.spec.views[this.view].lines; }

    controls() {
      const box = this.figure.querySelector(".views"), views = this.spec.views;
      if (views.length === 1) box.append(make("span", { textContent: views[0].label }));
      else views.forEach((v, i) => {
        const b = make("button", { type: "button", textContent: v.label, onclick: () => { this.view = i; this.log = null; this.draw(); } });
        box.append(b);
      });
      box.append(make("span", { className: "spacer" }));
      this.scale = make("button", { type: "button", onclick: () => { this.log = !this.isLog(); this.draw(); } });
      this.whole = make("button", { type: "button", textContent: "whole", hidden: true, onclick: () => this.draw() });
      box.append(this.whole, this.scale);
    }

    isLog() {
      return (this.log === null ? this.spec.views[this.view].log : this.log) && this.positive();
    }

    positive() {
      const all = this.lines.flatMap((l) => l.y.filter((v) => v != null)); // rounding takes a few gaps below zero
      return this.spec.kind !== "bars" && all.length > 0 && all.filter((v) => v > 0).length >= 0.8 * all.length;
    }

    /* One x for all lines; what a line has no value for stays undefined, so that it is drawn through. */
    data() {
      const log = this.isLog(), tables = [];
      this.columns = [];
      for (const line of this.lines) {
        const keep = line.x.map((_, i) => i).filter((i) => !this.spec.xLog || line.x[i] > 0);
        const pick = (values) => keep.map((i) => (log && !(values[i] > 0) ? null : values[i]));
        const ys = [pick(line.y)];
        if (line.low) ys.push(pick(line.low), pick(line.high));
        this.columns.push(ys.length);
        tables.push([keep.map((i) => line.x[i]), ...ys]);
      }
      return uPlot.join(tables, tables.map((t) => t.map(() => 1)));
    }

    draw() {
      if (this.plot) this.plot.destroy();
      const data = this.data(), spec = this.spec, view = spec.views[this.view], log = this.isLog();
      const series = [{ label: spec.x }], bands = [];
      this.places = [];
      this.lines.forEach((line, i) => {
        const at = series.length, ours = line.name.startsWith("Algorithm 1"), bars = spec.kind === "bars" && i === 0;
        this.places.push(at);
        series.push({
          label: line.name, show: !this.hidden.has(line.name), dash: bars ? undefined : line.dash,
          stroke: () => colour(line), width: bars ? 0 : ours ? 3.6 : 1.5, // a line on top of ours still shows it on both sides
          fill: bars ? () => faded(colour(line), 0.6) : undefined,
          paths: bars ? uPlot.paths.bars({ size: [0.6, 60] }) : undefined,
          points: { show: spec.kind === "points" && line.x.length < 40, size: 6, fill: () => colour(line) },
        });
        if (this.columns[i] > 1) {
          for (const _ of [0, 1]) series.push({ label: "range", show: !this.hidden.has(line.name), stroke: "transparent", width: 0, points: { show: false } });
          bands.push({ series: [at + 2, at + 1], fill: () => faded(colour(line), 0.13) });
        }
      });
      const axis = { stroke: () => (printing ? "#444" : css("--soft")), font: "12px " + css("--sans"), labelFont: "12px " + css("--sans"),
        grid: { stroke: () => (printing ? "#ddd" : css("--line")), width: 1, filter: (u, splits, i) => (i && log) || (!i && spec.xLog) ? splits.map(decade) : splits }, ticks: { show: false } };
      const ticks = spec.ticks;
      const xAxis = { ...axis, label: spec.x, labelSize: 18, size: 28, gap: 5, values: (_, s) => s.map(tickText) };
      if (ticks) Object.assign(xAxis, { splits: () => ticks.map((_, i) => i), values: (u, s) => s.map((i) => this.room(u) > 11 * Math.max(...ticks.map((t) => t.length)) * 0.62 || i % 3 === 0 ? ticks[i] : ""), grid: { show: false } });
      const scaleX = { time: false, distr: spec.xLog ? 3 : 1 };
      if (spec.xLog) scaleX.range = (u, lo, hi) => [lo, hi];
      if (ticks) scaleX.range = (u, lo, hi) => (lo === 0 && hi === ticks.length - 1 ? [-0.6, ticks.length - 0.4] : [lo, hi]);
      const scaleY = { distr: log ? 3 : 1 };
      scaleY.range = (u, lo, hi) => (log ? this.rangeLog(lo, hi) : this.rangeY(lo, hi));
      this.plot = new uPlot({
        width: this.host.clientWidth || 300, height: this.height(), legend: { show: false }, series, bands, padding: [10, 22, 0, 0],
        scales: { x: scaleX, y: scaleY },
        axes: [xAxis, { ...axis, size: (u, values) => 14 + 6.6 * Math.max(2, ...(values || []).map((v) => String(v ?? "").length)), gap: 6, values: (_, s) => s.map(tickText) }],
        cursor: { drag: { x: true, y: true, uni: 24 }, points: { size: 7 }, focus: { prox: 24 } },
        hooks: { setCursor: [(u) => this.hover(u)], setSelect: [() => { this.whole.hidden = false; }] },
      }, data, this.host);
      this.plot.over.addEventListener("mouseleave", () => { tip.hidden = true; });
      this.plot.over.addEventListener("dblclick", () => { this.whole.hidden = true; });
      this.pinch(this.plot.over);
      this.whole.hidden = true;
      this.scale.textContent = log ? "linear" : "log";
      this.scale.hidden = !this.positive();
      this.figure.querySelectorAll(".views button").forEach((b, i) => {
        if (i < spec.views.length && spec.views.length > 1) b.setAttribute("aria-pressed", String(i === this.view));
      });
      this.legend();
      this.host.setAttribute("role", "img");
      this.host.setAttribute("aria-label", `${view.label} over ${spec.x}: ${this.lines.map((l) => l.name).join(", ")}. The numbers stand below.`);
      this.figure.dataset.lines = this.places.length;
    }

    room(u) { return u.bbox.width / uPlot.pxRatio / this.spec.ticks.length; }

    height() { return this.host.clientWidth > 620 ? 340 : this.host.clientWidth > 420 ? 270 : 240; }

    /* Whole decades, seven at most: what lies deeper is rounding, and can be zoomed into. */
    rangeLog(lo, hi) {
      if (!(lo > 0)) return [0.1, 1];
      const step = 10 ** Math.floor(Math.log10(lo));
      return hi / lo < 10 ? [Math.floor(lo / step) * step, Math.ceil(hi / step) * step] : uPlot.rangeLog(Math.max(lo, hi * 1e-7), hi, 10, true);
    }

    rangeY(lo, hi) {
      if (lo == null) return [0, 1];
      if (this.spec.kind === "bars" || (lo >= 0 && lo < 0.4 * hi)) lo = 0;
      const room = (hi - lo || Math.abs(hi) || 1) * 0.06;
      return [lo === 0 ? 0 : lo - room, hi + room];
    }

    fit() {
      const width = this.host.clientWidth;
      if (width && width !== this.width) {
        this.width = width;
        this.plot.setSize({ width, height: this.height() });
      }
    }

    legend() {
      const box = this.figure.querySelector(".legend");
      box.replaceChildren(...this.lines.map((line, i) => {
        const off = this.hidden.has(line.name);
        const b = make("button", { type: "button", className: off ? "off" : "", onclick: () => {
          this.hidden[this.hidden.has(line.name) ? "delete" : "add"](line.name);
          const show = !this.hidden.has(line.name);
          for (let k = 0; k < this.columns[i]; k++) this.plot.setSeries(this.places[i] + k, { show });
          b.classList.toggle("off", !show);
          b.setAttribute("aria-pressed", String(!show));
        } }, swatch(line), make("span", { textContent: line.name }));
        return b;
      }));
      box.hidden = this.lines.length < 2 && this.spec.views.length > 1;
    }

    /* The value of a line at or beside a column of the joined table. */
    near(place, idx) {
      const y = this.plot.data[place];
      for (let d = 0; d < 12; d++) for (const i of [idx - d, idx + d]) if (y[i] != null) return y[i];
      return null;
    }

    hover(u) {
      const { idx, left, top } = u.cursor;
      if (idx == null || left < 0) { tip.hidden = true; return; }
      const rows = this.lines.map((line, i) => ({ line, i, v: this.near(this.places[i], idx) })).filter((r) => r.v != null && !this.hidden.has(r.line.name));
      rows.sort((a, b) => b.v - a.v);
      const x = u.data[0][idx], ticks = this.spec.ticks;
      tip.replaceChildren(make("div", { className: "x", textContent: `${this.spec.x} ${ticks ? ticks[x] : text(x)}` }),
        ...rows.slice(0, 14).map(({ line, i, v }) => {
          const range = this.columns[i] > 1 ? ` (${text(this.near(this.places[i] + 1, idx))} to ${text(this.near(this.places[i] + 2, idx))})` : "";
          return make("div", {}, swatch(line), make("span", { textContent: line.name }), make("span", { textContent: text(v) + range }));
        }));
      tip.hidden = false;
      const box = u.over.getBoundingClientRect(), w = tip.offsetWidth, h = tip.offsetHeight;
      const toLeft = box.left + left + 14 + w > innerWidth - 4;
      tip.style.left = Math.max(4, toLeft ? box.left + left - w - 14 : box.left + left + 14) + "px";
      tip.style.top = Math.max(4, Math.min(innerHeight - h - 4, box.top + top - h / 2)) + "px";
    }

    /* Two fingers zoom the x axis. */
    pinch(over) {
      let start = null;
      const places = (e) => [...e.touches].map((t) => t.clientX - over.getBoundingClientRect().left).sort((a, b) => a - b);
      over.addEventListener("touchstart", (e) => {
        if (e.touches.length === 2) start = places(e).map((p) => this.plot.posToVal(p, "x"));
      }, { passive: true });
      over.addEventListener("touchmove", (e) => {
        if (!start || e.touches.length !== 2) return;
        e.preventDefault();
        const [a, b] = places(e), width = over.clientWidth, log = this.spec.xLog;
        const go = log ? Math.log10 : (v) => v, back = log ? (v) => 10 ** v : (v) => v;
        const slope = (go(start[1]) - go(start[0])) / Math.max(20, b - a);
        this.plot.setScale("x", { min: back(go(start[0]) - slope * a), max: back(go(start[0]) + slope * (width - a)) });
        this.whole.hidden = false;
      }, { passive: false });
      over.addEventListener("touchend", () => { start = null; });
    }

    /* The numbers drawn, for reading and copying; made when first opened. */
    table() {
      const box = this.figure.querySelector(".data .scroll");
      const cell = (tag, v) => make(tag, { textContent: v, className: "num" });
      const body = make("tbody"), d = this.plot.data;
      for (let i = 0; i < d[0].length; i++)
        body.append(make("tr", {}, cell("td", this.spec.ticks ? this.spec.ticks[d[0][i]] : text(d[0][i])), ...this.places.map((p) => cell("td", d[p][i] == null ? "" : text(d[p][i])))));
      const head = make("tr", {}, cell("th", this.spec.x), ...this.lines.map((l) => cell("th", l.name)));
      box.replaceChildren(make("table", {}, make("thead", {}, head), body));
    }
  }

  function start() {
    const specs = JSON.parse(document.getElementById("charts").textContent);
    const draw = (figure) => {
      if (figure.dataset.lines === undefined) all.push(new Chart(figure, specs[Number(figure.dataset.chart)]));
    };
    // What is folded away has no width to draw in: it is drawn when it is first opened.
    for (const figure of document.querySelectorAll("figure.chart")) {
      const folded = figure.closest("details.more");
      if (!folded || folded.open) draw(figure);
      else folded.addEventListener("toggle", () => { if (folded.open) draw(figure); });
    }
    document.fonts.load('12px "Source Sans 3"').then(repaint);
  }

  function repaint() {
    for (const chart of all) { chart.plot.redraw(false); chart.legend(); }
  }

  addEventListener("beforeprint", () => { printing = true; repaint(); });
  addEventListener("afterprint", () => { printing = false; repaint(); });
  return { start, repaint, all };
})();
