/* Draws every folded figure of the page with uPlot from the data in #charts: at most five lines, each named at its end;
   zoom by buttons or dragging, values by hovering or with the arrow keys. */
"use strict";
const Charts = (() => {
  const all = [], MOST = 5;
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
    if (size < 1e-3 || size >= 1e7) return v.toExponential(2).replace("-", "−").replace("e+", "e");
    return String(Number(v.toPrecision(4))).replace("-", "−");
  }

  function tickText(v) {
    if (v == null) return "";
    const power = Math.log10(Math.abs(v));
    if (v !== 0 && (power <= -3 || power >= 5) && Math.abs(power - Math.round(power)) < 1e-9)
      return "10" + String(Math.round(power)).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
    return text(v);
  }

  /* Ticks of a logarithmic axis however far it is zoomed: decades, else ones, twos and fives, else round numbers. */
  function logTicks(low, high) {
    if (!(low > 0) || !(high > low)) return [];
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), inside = (v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9);
    const powers = Array.from({ length: last - first + 1 }, (_, i) => first + i);
    const decades = powers.map((k) => 10 ** k).filter(inside);
    if (decades.length > 2) { const step = Math.ceil(decades.length / 7); return decades.filter((_, i) => i % step === 0); }
    const fine = powers.flatMap((k) => [1, 2, 5].map((m) => Number((m * 10 ** k).toPrecision(12)))).filter(inside);
    if (fine.length > 2) return fine;
    const span = high - low, unit = 10 ** Math.floor(Math.log10(span / 4)), step = unit * [10, 5, 2.5, 2, 1].find((m) => span / (m * unit) >= 4);
    const ticks = [];
    for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(Number((k * step).toPrecision(12)));
    return ticks;
  }

  function make(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    Object.assign(node, properties);
    node.append(...children);
    return node;
  }

  function drawn(tag, attributes) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  }

  function swatch(line, round) {
    const svg = drawn("svg", { viewBox: round ? "7 0 13 13" : "0 0 27 13", "aria-hidden": "true" });
    if (round) svg.append(drawn("circle", { cx: 13.5, cy: 6.5, r: 4.5, fill: line.dash ? "none" : colour(line), stroke: colour(line), "stroke-width": 2 }));
    else svg.append(drawn("path", { d: "M0 6.5H27", stroke: colour(line), "stroke-width": 2.6, "stroke-dasharray": (line.dash || []).join(" ") }));
    return svg;
  }

  class Chart {
    constructor(figure, spec) {
      Object.assign(this, { figure, spec, view: 0, page: 0, hidden: new Set(), log: null });
      for (const view of spec.views) for (const line of view.lines) if (!Array.isArray(line.x)) line.x = spec.xs[line.x];
      this.host = figure.querySelector(".plot");
      this.read = figure.querySelector(".read");
      this.controls();
      this.draw();
      this.width = this.host.clientWidth;
      new ResizeObserver(() => this.fit()).observe(this.host);
      this.keyboard();
      figure.querySelector(".data").addEventListener("toggle", () => this.table());
    }

    /* Five lines at a time: the first ones, and then our own with the next four. */
    get lines() {
      const every = this.spec.views[this.view].lines;
      if (!this.page) return every.slice(0, MOST);
      const from = MOST + (this.page - 1) * (MOST - 1);
      return [every[0], ...every.slice(from, from + MOST - 1)];
    }

    get pages() { return 1 + Math.max(0, Math.ceil((this.spec.views[this.view].lines.length - MOST) / (MOST - 1))); }

    controls() {
      const box = this.figure.querySelector(".views"), views = this.spec.views;
      const button = (textContent, label, onclick) => {
        const b = make("button", { type: "button", textContent, onclick });
        if (label) b.setAttribute("aria-label", label);
        box.append(b);
        return b;
      };
      this.choices = [];
      if (views.length === 1) box.append(make("span", { textContent: views[0].label }));
      else this.choices = views.map((v, i) => button(v.label, "", () => { this.view = i; this.page = 0; this.log = null; this.draw(); }));
      box.append(make("span", { className: "spacer" }));
      this.more = button("", "", () => { this.page = (this.page + 1) % this.pages; this.draw(); });
      this.scale = button("", "", () => { this.log = !this.isLog(); this.draw(); });
      button("−", "− zoom out", () => this.zoom(2));
      button("+", "+ zoom in", () => this.zoom(0.5));
      this.whole = button("reset", "reset zoom", () => this.draw());
    }

    isLog() {
      return (this.log === null ? this.spec.views[this.view].log : this.log) && this.positive();
    }

    positive() {
      const every = this.lines.flatMap((l) => l.y.filter((v) => v != null)); // rounding takes a few gaps below zero
      return this.spec.kind !== "bars" && every.length > 0 && every.filter((v) => v > 0).length >= 0.8 * every.length;
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
      this.plot = this.range = null;
      const data = this.data(), spec = this.spec, view = spec.views[this.view], log = this.isLog();
      const series = [{ label: spec.x }], bands = [], ticks = spec.ticks, dots = spec.kind === "points" && ticks;
      this.places = [];
      this.lines.forEach((line, i) => {
        const at = series.length, ours = /^(Algorithm 1|own )/.test(line.name), bars = spec.kind === "bars" && i === 0;
        this.places.push(at);
        series.push({
          label: line.name, show: !this.hidden.has(line.name), dash: bars ? undefined : line.dash,
          stroke: () => colour(line), width: bars ? 0 : ours ? 3.2 : 1.6, // a line on top of ours still shows it on both sides
          fill: bars ? () => faded(colour(line), 0.6) : undefined,
          paths: bars ? uPlot.paths.bars({ size: [0.6, 60] }) : dots ? () => null : undefined, // no order in the ticks, no line between them
          points: { show: spec.kind === "points" && line.x.length < 40, size: dots ? 9 : 6, fill: () => (dots && line.dash ? css("--paper") : colour(line)), width: dots ? 2.5 : 1 },
        });
        if (this.columns[i] > 1) {
          for (const _ of [0, 1]) series.push({ label: "range", show: !this.hidden.has(line.name), stroke: "transparent", width: 0, points: { show: false } });
          bands.push({ series: [at + 2, at + 1], fill: () => faded(colour(line), dots ? 0 : 0.13) });
        }
      });
      const axis = { stroke: () => (printing ? "#444" : css("--soft")), font: "12px " + css("--sans"), labelFont: "12px " + css("--sans"),
        grid: { stroke: () => (printing ? "#ddd" : css("--line")), width: 1 }, ticks: { show: false }, values: (_, s) => s.map(tickText) };
      const logAxis = { splits: (u, i, low, high) => logTicks(low, high), filter: (_, s) => s };
      const xAxis = { ...axis, label: spec.x, labelSize: 18, size: 28, gap: 5, ...(spec.xLog ? logAxis : {}) };
      if (ticks) {
        const most = Math.max(...ticks.map((t) => t.length)), turned = (this.host.clientWidth - 60 - this.beside()) / ticks.length < 6.6 * most;
        Object.assign(xAxis, { splits: () => ticks.map((_, i) => i), values: (u, s) => s.map((i) => ticks[i] ?? ""), grid: { show: false } });
        if (turned) Object.assign(xAxis, { rotate: -38, size: Math.min(120, 16 + 4.2 * most) });
      }
      const scaleX = { time: false, distr: spec.xLog ? 3 : 1 };
      if (spec.xLog) scaleX.range = (u, lo, hi) => [lo, hi];
      const loose = ticks && (spec.kind !== "line");
      if (loose) scaleX.range = (u, lo, hi) => (lo === 0 && hi === ticks.length - 1 ? [-0.6, ticks.length - 0.4] : [lo, hi]);
      const scaleY = { distr: log ? 3 : 1, range: (u, lo, hi) => (log ? this.rangeLog(lo, hi) : this.rangeY(lo, hi)) };
      this.plot = new uPlot({
        width: this.host.clientWidth || 300, height: this.height(), legend: { show: false }, series, bands, padding: [10, this.beside(), 0, 0],
        scales: { x: scaleX, y: scaleY },
        axes: [xAxis, { ...axis, ...(log ? logAxis : {}), size: (u, values) => 14 + 6.6 * Math.max(2, ...(values || []).map((v) => String(v ?? "").length)), gap: 6 }],
        cursor: { drag: { x: true, y: true, uni: 24 }, points: { size: 7 }, focus: { prox: 24 } },
        hooks: { setCursor: [(u) => this.hover(u)], setScale: [() => this.zoomed()], draw: [() => this.drawn()] },
      }, data, this.host);
      this.plot.over.addEventListener("mouseleave", () => { tip.hidden = true; });
      this.pinch(this.plot.over);
      this.whole.disabled = true;
      this.scale.textContent = log ? "linear" : "log";
      this.scale.setAttribute("aria-label", log ? "linear scale" : "log scale");
      this.scale.hidden = !this.positive();
      this.more.hidden = this.pages < 2;
      this.more.textContent = `lines ${this.page + 1} of ${this.pages}`;
      this.more.setAttribute("aria-label", `lines ${this.page + 1} of ${this.pages}, show the next`);
      this.choices.forEach((b, i) => b.setAttribute("aria-pressed", String(i === this.view)));
      this.host.setAttribute("aria-label", `${spec.title}: ${view.label} over ${spec.x}. Lines: ${this.lines.map((l) => l.name).join(", ")}. Arrow keys read the values, plus and minus zoom, 0 shows the whole.`);
      this.figure.dataset.lines = this.places.length;
    }

    height() {
      const long = this.spec.ticks && Math.max(...this.spec.ticks.map((t) => t.length)) > 12 ? 70 : 0;
      return (this.host.clientWidth > 620 ? 340 : this.host.clientWidth > 420 ? 280 : 260) + long;
    }

    /* After every drawing; the first one knows the whole range. */
    drawn() {
      if (!this.plot) return; // drawn while it is made: it will be drawn again
      if (!this.range) this.range = [this.plot.scales.x.min, this.plot.scales.x.max];
      this.names();
      this.zoomed();
    }

    /* Width of the names at the lines' ends. */
    beside() {
      const most = Math.max(...this.lines.map((l) => Math.min(l.name.length, 18)));
      return Math.min(6.2 * most + 26, 0.36 * (this.host.clientWidth || 300));
    }

    /* The names, as buttons that hide their line, where the lines end; thin lines lead to them. */
    names() {
      const u = this.plot;
      const box = this.labels && this.labels.isConnected ? this.labels : (this.labels = make("div", { className: "names" }));
      if (!box.isConnected) u.root.querySelector(".u-wrap").append(box);
      const ratio = uPlot.pxRatio, right = (u.bbox.left + u.bbox.width) / ratio, top = u.bbox.top / ratio, bottom = top + u.bbox.height / ratio;
      const width = u.width - right - 20, [from, to] = [u.scales.x.min, u.scales.x.max], bars = this.spec.kind === "bars";
      const rows = this.lines.map((line, i) => {
        const y = u.data[this.places[i]], x = u.data[0];
        let at = -1;
        for (let k = 0; k < x.length; k++) if (y[k] != null && x[k] >= from && x[k] <= to) at = k;
        const off = this.hidden.has(line.name), end = at < 0 || off ? bottom : Math.max(top, Math.min(bottom, top + u.valToPos(y[at], "y")));
        const lines = Math.ceil((6.4 * line.name.length) / Math.max(30, width));
        return { line, i, off, end, start: at < 0 || off ? null : u.bbox.left / ratio + u.valToPos(x[at], "x"), high: 15 * Math.min(3, lines) + 2 };
      }).sort((a, b) => a.end - b.end);
      let free = top - 6;
      for (const r of rows) { r.middle = Math.max(r.end, free + r.high / 2); free = r.middle + r.high / 2; }
      let limit = bottom + 6;
      for (const r of [...rows].reverse()) { r.middle = Math.min(r.middle, limit - r.high / 2); limit = r.middle - r.high / 2; }
      const svg = drawn("svg", { width: u.width, height: u.height, "aria-hidden": "true" });
      const keyed = bars || (this.spec.kind === "points" && this.spec.ticks);
      box.classList.toggle("keyed", Boolean(keyed));
      for (const r of rows) if (r.start !== null && !keyed)
        svg.append(drawn("path", { d: `M${r.start} ${r.end}L${right + 12} ${r.middle}h4`, stroke: colour(r.line), "stroke-width": 1.1, fill: "none" }));
      const focused = box.contains(document.activeElement) ? document.activeElement.dataset.name : null;
      box.replaceChildren(svg, ...rows.sort((a, b) => a.i - b.i).map((r) => {
        const b = make("button", { type: "button", className: r.off ? "off" : "", onclick: () => this.toggle(r.line.name) }, swatch(r.line, keyed), make("span", { textContent: r.line.name }));
        b.style.cssText = `left:${right + 18}px;top:${r.middle - r.high / 2}px;width:${width + 2}px;height:${r.high}px`;
        b.setAttribute("aria-pressed", String(!r.off));
        b.dataset.name = r.line.name;
        return b;
      }));
      if (focused !== null) [...box.querySelectorAll("button")].find((b) => b.dataset.name === focused)?.focus();
    }

    toggle(name) {
      this.hidden[this.hidden.has(name) ? "delete" : "add"](name);
      this.lines.forEach((line, i) => {
        if (line.name === name) for (let k = 0; k < this.columns[i]; k++) this.plot.setSeries(this.places[i] + k, { show: !this.hidden.has(name) });
      });
      this.plot.redraw();
    }

    /* Half or twice the rounds around the middle, or around the point that is read. */
    zoom(factor) {
      const log = this.spec.xLog, go = log ? Math.log10 : (v) => v, back = log ? (v) => 10 ** v : (v) => v;
      if (!this.range) return;
      const { min, max } = this.plot.scales.x, [low, high] = this.range.map(go), x = this.plot.data[0];
      const middle = this.at == null ? (go(min) + go(max)) / 2 : Math.max(go(min), Math.min(go(max), go(x[this.at])));
      const half = (factor * (go(max) - go(min))) / 2;
      if (factor < 1 && 2 * half < 1e-3 * (high - low)) return;
      const from = Math.max(low, middle - half), to = Math.min(high, middle + half);
      if (factor > 1 && from <= low && to >= high) this.draw();
      else this.plot.setScale("x", { min: back(from), max: back(to) });
    }

    zoomed() {
      if (!this.plot || !this.range) return;
      const { min, max } = this.plot.scales.x, wide = 1e-9 * (this.range[1] - this.range[0]);
      this.whole.disabled = Math.abs(min - this.range[0]) <= wide && Math.abs(max - this.range[1]) <= wide;
    }

    /* Whole decades, seven at most: what lies deeper is rounding, and can be zoomed into. */
    rangeLog(lo, hi) {
      if (!(lo > 0)) return [0.1, 1];
      return hi / lo < 30 ? [lo / 1.1, hi * 1.1] : uPlot.rangeLog(Math.max(lo, hi * 1e-7), hi, 10, true);
    }

    rangeY(lo, hi) {
      if (lo == null) return [0, 1];
      if (this.spec.kind === "bars" || (lo >= 0 && lo < 0.4 * hi)) lo = 0;
      const rest = (hi - lo || Math.abs(hi) || 1) * 0.06;
      return [lo === 0 ? 0 : lo - rest, hi + rest];
    }

    fit() {
      const width = this.host.clientWidth;
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    }

    /* The value of a line at or near a column of the joined table. */
    near(place, idx) {
      const y = this.plot.data[place];
      for (let d = 0; d < 12; d++) for (const i of [idx - d, idx + d]) if (y[i] != null) return y[i];
      return null;
    }

    values(idx) {
      const rows = this.lines.map((line, i) => ({ line, i, v: this.near(this.places[i], idx) })).filter((r) => r.v != null && !this.hidden.has(r.line.name));
      const range = (i) => (this.columns[i] > 1 ? ` (${text(this.near(this.places[i] + 1, idx))} to ${text(this.near(this.places[i] + 2, idx))})` : "");
      const x = this.plot.data[0][idx], ticks = this.spec.ticks;
      return { x: `${this.spec.x} ${ticks ? ticks[x] : text(x)}`, rows: rows.sort((a, b) => b.v - a.v).map(({ line, i, v }) => ({ line, said: text(v) + range(i) })) };
    }

    hover(u) {
      const { idx, left, top } = u.cursor;
      if (idx == null || left < 0) { tip.hidden = true; return; }
      const { x, rows } = this.values(idx);
      tip.replaceChildren(make("div", { className: "x", textContent: x }),
        ...rows.map(({ line, said }) => make("div", {}, swatch(line), make("span", { textContent: line.name }), make("span", { textContent: said }))));
      tip.hidden = false;
      const box = u.over.getBoundingClientRect(), w = tip.offsetWidth, h = tip.offsetHeight;
      const toLeft = box.left + left + 14 + w > innerWidth - 4;
      tip.style.left = Math.max(4, toLeft ? box.left + left - w - 14 : box.left + left + 14) + "px";
      tip.style.top = Math.max(4, Math.min(innerHeight - h - 4, box.top + top - h / 2)) + "px";
    }

    /* Arrow keys go from point to point and say the values; + and - zoom, 0 and Escape show the whole. */
    keyboard() {
      const host = this.host;
      host.tabIndex = 0;
      host.setAttribute("role", "application");
      host.setAttribute("aria-roledescription", "chart");
      host.addEventListener("keydown", (e) => {
        if (e.target !== host || e.ctrlKey || e.metaKey || e.altKey) return;
        const x = this.plot.data[0], { min, max } = this.plot.scales.x, seen = x.map((_, i) => i).filter((i) => x[i] >= min && x[i] <= max);
        const now = seen.indexOf(this.at), last = seen.length - 1;
        const to = { ArrowRight: now + 1, ArrowLeft: now < 0 ? last : now - 1, Home: 0, End: last, PageDown: now + 10, PageUp: now - 10 }[e.key];
        if (to !== undefined && seen.length) this.say(seen[Math.max(0, Math.min(last, to))]);
        else if (e.key === "+" || e.key === "=") this.zoom(0.5);
        else if (e.key === "-" || e.key === "−") this.zoom(2);
        else if (e.key === "0" || e.key === "Escape") { this.at = null; this.draw(); }
        else return;
        e.preventDefault();
      });
      host.addEventListener("blur", () => { tip.hidden = true; });
    }

    say(idx) {
      this.at = idx;
      const { x, rows } = this.values(idx);
      this.read.textContent = `${x}: ${rows.map(({ line, said }) => `${line.name} ${said}`).join("; ")}`;
      this.plot.setCursor({ left: this.plot.valToPos(this.plot.data[0][idx], "x"), top: this.plot.over.clientHeight / 2 });
      tip.hidden = true; // the same words stand below the chart
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
    for (const chart of all) chart.plot.redraw(false);
  }

  addEventListener("beforeprint", () => { printing = true; repaint(); });
  addEventListener("afterprint", () => { printing = false; repaint(); });
  return { start, repaint, all, logTicks };
})();
