/* The live picture of the predicted gain (sum w_i L_i)(sum w_i / L_i): bars as wide as the weights. */
"use strict";
const Gain = (() => {
  const box = document.getElementById("gain");
  const presets = {
    "Two devices, 1/3 and 3": [[1 / 3, 3]],
    "W8A by norms": [[0.88, 3.7]],
    "MNIST, five devices": [[119, 145, 178, 336, 488]],
    "CIFAR-10, ten devices": [[528, 392, 495, 422, 510, 393, 405, 410, 440, 448]],
    "One rare, steep device": [[1, 1, 10], [0.45, 0.45, 0.1]],
    "All alike": [[1, 1, 1]],
  };
  let L = [], w = [];

  const show = (v) => String(Number(v.toPrecision(v >= 100 ? 4 : 3)));
  const mean = (values) => values.reduce((sum, v, i) => sum + w[i] * v, 0) / w.reduce((a, b) => a + b, 0);

  function svg(tag, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  /* Bars side by side, and horizontal lines with their names: [value, colour class, label]. */
  function bars(target, values, lines, colour) {
    const width = target.clientWidth || 400, height = target.clientHeight || 200, top = 16, right = 92, bottom = 18;
    const total = w.reduce((a, b) => a + b, 0), most = Math.max(...values, ...lines.map((l) => l[0])) * 1.04;
    const y = (v) => height - bottom - (height - bottom - top) * (v / most);
    const parts = [], words = [];
    let x = 0;
    values.forEach((v, i) => {
      const wide = ((width - right) * w[i]) / total;
      parts.push(svg("rect", { x: x + 1, y: y(v), width: Math.max(1, wide - 2), height: height - bottom - y(v), style: `fill: var(--${colour}); opacity: .3`, rx: 1.5 }));
      let above = y(v) - 4; // no line goes through the number
      for (const l of [...lines].sort((a, b) => a[0] - b[0])) if (y(l[0]) > above - 13 && y(l[0]) < above + 3) above = y(l[0]) - 4;
      if (wide > 26) words.push(svg("text", { x: x + wide / 2, y: above, "text-anchor": "middle" }, show(v)));
      if (wide > 12) parts.push(svg("text", { x: x + wide / 2, y: height - 3, "text-anchor": "middle", style: "fill: var(--faint)" }, i + 1));
      x += wide;
    });
    parts.push(svg("line", { x1: 0, x2: width - right, y1: height - bottom, y2: height - bottom, style: "stroke: var(--faint)" }));
    const heights = lines.map((l) => y(l[0]));
    if (heights.length === 2 && Math.abs(heights[0] - heights[1]) < 15) {
      const middle = (heights[0] + heights[1]) / 2, first = heights[0] <= heights[1] ? -1 : 1;
      heights[0] = middle + 7.5 * first; heights[1] = middle - 7.5 * first;
    }
    lines.forEach(([v, name, label], i) => {
      parts.push(svg("line", { x1: 0, x2: width - right + 4, y1: y(v), y2: y(v), style: `stroke: var(--${name}); stroke-width: 2; ${name === "gd" ? "stroke-dasharray: 5 3" : ""}` }));
      parts.push(svg("text", { x: width - right + 8, y: heights[i] + 4, class: name }, label));
    });
    target.setAttribute("viewBox", `0 0 ${width} ${height}`); // so that it fits when printed on narrower paper
    target.replaceChildren(...parts, ...words);
  }

  function draw() {
    const bar = mean(L), step = mean(L.map((v) => 1 / v)), gain = bar * step;
    box.querySelector("[data-lbar]").textContent = show(bar);
    box.querySelector("[data-mean]").textContent = show(step);
    box.querySelector("[data-gain]").textContent = gain.toFixed(2);
    command();
    bars(box.querySelector("[data-curvature]"), L, [[bar, "gd", `L̄ = ${show(bar)}`]], "up");
    bars(box.querySelector("[data-steps]"), L.map((v) => 1 / v), [[step, "ours", `mean ${show(step)}`], [1 / bar, "gd", `1/L̄ = ${show(1 / bar)}`]], "ours");
    box.querySelector("[data-reading]").textContent = gain < 1.05
      ? `The devices curve so alike that their own steps are on average only ${((gain - 1) * 100).toFixed(1)} % longer than the common one: expect what gradient descent gives.`
      : `On average the own steps are ${gain.toFixed(2)} times as long as the common step 1/L̄. If step length were all that counted, the local phase would need 1/${gain.toFixed(2)} = ${(1 / gain).toFixed(2)} of the rounds.`;
  }

  function sliders() {
    const total = w.reduce((a, b) => a + b, 0), middle = Math.exp(L.reduce((s, v) => s + Math.log(v), 0) / L.length);
    const rows = L.map((_, i) => {
      const row = document.createElement("div");
      row.className = "device";
      const out = [0, 1].map(() => document.createElement("output"));
      const range = (name, min, max, value, set) => {
        const input = document.createElement("input");
        Object.assign(input, { type: "range", min, max, step: "any", className: name });
        input.value = value;
        input.setAttribute("aria-label", name === "w" ? `weight of device ${i + 1}` : `smoothness of device ${i + 1}`);
        input.addEventListener("input", () => { set(Number(input.value)); texts(); draw(); mark(null); });
        return input;
      };
      const [label, share] = ["L", "w"].map((name) => {
        const span = document.createElement("span");
        span.append(name, Object.assign(document.createElement("sub"), { textContent: String(i + 1) }));
        return span;
      });
      row.append(label, range("L", Math.log(middle) - 3, Math.log(middle) + 3, Math.log(L[i]), (v) => { L[i] = Math.exp(v); }), out[0],
        share, range("w", 0.02, 1, w[i] / total, (v) => { w[i] = v; }), out[1]);
      row.outputs = out;
      return row;
    });
    function texts() {
      const sum = w.reduce((a, b) => a + b, 0);
      rows.forEach((row, i) => { row.outputs[0].textContent = show(L[i]); row.outputs[1].textContent = `${Math.round((100 * w[i]) / sum)} %`; });
    }
    texts();
    box.querySelector(".sliders").replaceChildren(...rows);
  }

  const mark = (name) => box.querySelectorAll(".presets button").forEach((b) => b.setAttribute("aria-pressed", String(b.textContent === name)));

  function choose(name) {
    L = [...presets[name][0]];
    w = presets[name][1] ? [...presets[name][1]] : L.map(() => 1 / L.length);
    sliders();
    draw();
    mark(name);
  }

  /* Numbers as people paste them; an error quotes what cannot be read. */
  function read() {
    const fields = ["l", "w"].map((n) => box.querySelector(`[data-paste-${n}]`)), told = box.querySelector("[data-paste-told]");
    const [constants, shares] = fields.map((f) => f.value.split(/[\s,;]+/).filter(Boolean));
    const wrong = [...constants, ...shares].find((v) => !(Number(v) > 0));
    told.textContent = "";
    if (wrong !== undefined) told.textContent = `Constants and weights are positive numbers, got ${wrong}.`;
    else if (!constants.length) told.textContent = "Give at least one constant.";
    else if (shares.length && shares.length !== constants.length) told.textContent = `${constants.length} constants need ${constants.length} weights, got ${shares.length}.`;
    else {
      L = constants.map(Number);
      w = shares.length ? shares.map(Number) : L.map(() => 1 / L.length);
      sliders();
      draw();
      mark(null);
      Explorer.share("gain", { L, w });
    }
  }

  function command() {
    const sum = w.reduce((a, b) => a + b, 0);
    const list = (values) => values.map((v) => Number(v.toPrecision(4))).join(",");
    box.querySelector("[data-command]").textContent = `ownstep plan --L ${list(L)} --weights ${list(w.map((v) => v / sum))}`;
  }

  function start() {
    for (const f of box.querySelectorAll(".paste input")) f.addEventListener("change", read);
    box.querySelector(".presets").replaceChildren(...Object.keys(presets).map((name) => {
      const b = document.createElement("button");
      Object.assign(b, { type: "button", textContent: name, onclick: () => choose(name) });
      return b;
    }));
    choose(Object.keys(presets)[0]);
    new ResizeObserver(draw).observe(box);
  }

  /* From a shared address: the devices that somebody else set. */
  function set(kept) {
    if (!kept || !Array.isArray(kept.L) || !kept.L.every((v) => v > 0)) return;
    L = kept.L.slice();
    w = Array.isArray(kept.w) && kept.w.length === L.length ? kept.w.slice() : L.map(() => 1 / L.length);
    sliders();
    draw();
    mark(null);
  }
  return { start, set, redraw: draw };
})();
