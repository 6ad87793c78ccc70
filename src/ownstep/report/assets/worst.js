/* The worst case: certified curves over K from a grid that was computed once, and the map of Theorem 1. Sliders snap to the grid. */
"use strict";
const Worst = (() => {
  const NS = "http://www.w3.org/2000/svg", H = 330, LEFT = 46, RIGHT = 142, TOP = 24, BOTTOM = 40;
  const METHODS = [
    ["GD 1/L-bar", "GD, 1/L\u0304", "var(--gd)"], ["Algorithm 1", "Algorithm 1", "var(--ours)"], ["GD best fixed step", "best fixed step", "var(--tuned)"],
    ["Nesterov", "Nesterov", "var(--nesterov)"], ["ITEM", "ITEM", "var(--nesterov);stroke-dasharray:6 4"], ["designed", "designed steps", "var(--designed)"],
  ];
  const SLIDERS = [ // name, axis of the grid, label
    ["L1", "L", "L\u2081"], ["L2", "L", "L\u2082"], ["mu", "mu", "\u03bc / L\u0304"], ["rstar", "rstar", "R* / R\u2080"], ["K", "K", "rounds K"], ["share", "share", "switch after this share of K"],
  ];
  const AXIS = Object.fromEntries(SLIDERS.map(([name, from]) => [name, from]));
  const FIRST = { L1: 1 / 3, L2: 3, mu: 0.06, rstar: 0.1, K: 10, share: 0.5 }; // the paper's L = (1/3, 3), mu = 0.1, R* = R0 / 10
  const DIGITS = 1e-3; // the grid keeps four digits, rounded up
  let data, root, at, inputs;

  const make = (tag, attributes, parent, text) => {
    const node = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  };
  const axis = (name) => data.axes[AXIS[name]];
  const value = (name) => axis(name)[at[name]];
  const values = () => Object.fromEntries(SLIDERS.map(([name]) => [name, value(name)]));
  /* The place on an axis that is nearest to a number. */
  const snap = (name, wanted) => axis(name).reduce((best, v, i, all) => (Math.abs(v - wanted) < Math.abs(all[best] - wanted) ? i : best), 0);
  /* L stands on a geometric grid: how far apart the devices are there is their ratio, whatever the unit. */
  const apart = () => Math.abs(at.L1 - at.L2);
  const short = (v) => (v >= 1e-3 ? String(Number(v.toPrecision(3))) : v.toExponential(2).replace("-", "\u2212"));

  /* One number per K. Devices that are alike take the same step as GD, so Algorithm 1 is GD there. */
  function curve(method, rstar, share) {
    if (method === "Algorithm 1" && !apart()) return curve("GD 1/L-bar");
    const known = data.curves[method] || {}, pair = [apart(), value("mu"), rstar];
    if (method === "designed") return axis("K").map((k) => (known[[...pair, k].join("|")] || [])[0]);
    return known[method === "Algorithm 1" ? [...pair, share].join("|") : value("mu")] || [];
  }

  /* [K, value] of a method where the sliders stand: only what a certificate proves. A gap in the grid is left out. */
  function points(method) {
    const found = curve(method, value("rstar"), value("share"));
    return axis("K").map((k, i) => [k, found[i]]).filter((p) => p[1] > 0);
  }

  function curves() {
    const svg = root.querySelector("[data-curves]"), K = axis("K"), last = K[K.length - 1];
    const W = Math.max(330, Math.min(640, svg.clientWidth || 640)); // letters keep their size on a phone
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.replaceChildren();
    const lines = METHODS.map((m) => [m, points(m[0])]).filter(([, p]) => p.length);
    const all = lines.flatMap(([, p]) => p.map((q) => q[1]));
    const low = Math.floor(Math.log10(Math.min(...all))), high = Math.ceil(Math.log10(Math.max(...all)));
    const x = (k) => LEFT + (W - LEFT - RIGHT) * (k - K[0]) / (last - K[0]);
    const y = (v) => TOP + (H - TOP - BOTTOM) * (high - Math.log10(v)) / Math.max(1, high - low);
    for (let p = low; p <= high; p++) {
      make("path", { class: "grid", d: `M${LEFT} ${y(10 ** p)}H${W - RIGHT}` }, svg);
      make("text", { class: "tick", x: LEFT - 6, y: y(10 ** p) + 4, "text-anchor": "end" }, svg,
        "10" + String(p).replace(/./g, (c) => "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"["-0123456789".indexOf(c)]));
    }
    let free = 0;
    for (const k of K) if (x(k) >= free && (free = x(k) + 17)) make("text", { class: "tick", x: x(k), y: H - BOTTOM + 17, "text-anchor": "middle" }, svg, k);
    make("text", { class: "tick", x: (LEFT + W - RIGHT) / 2, y: H - 6, "text-anchor": "middle" }, svg, "rounds K");
    make("text", { class: "tick", x: 4, y: 13 }, svg, "worst f(x\u1d37) \u2212 f*, in units of L\u0304 R\u2080\u00b2");
    make("path", { class: "now", d: `M${x(value("K"))} ${TOP}V${H - BOTTOM}` }, svg);
    const ends = lines.filter(([m]) => m[0] !== "designed").map(([m, p]) => [y(p[p.length - 1][1]), m[0]]).sort((a, b) => a[0] - b[0]);
    ends.forEach((e, i) => { if (i && e[0] < ends[i - 1][0] + 16) e[0] = ends[i - 1][0] + 16; });
    const over = Math.max(0, ends[ends.length - 1][0] - (H - BOTTOM + 10));
    for (const [[name, label, colour], line] of lines) {
      const path = line.map(([k, v]) => `${x(k).toFixed(1)} ${y(v).toFixed(1)}`).join("L");
      if (name !== "designed") make("path", { class: name === "Algorithm 1" ? "trail ours" : "trail", style: `stroke:${colour}`, d: "M" + path }, svg);
      for (const [k, v] of line) {
        const mark = name === "designed" ? make("path", { d: `M${x(k)} ${y(v) - 7}l6 6l-6 6l-6-6z`, style: `fill:${colour}`, class: "certified" }, svg)
          : make("circle", { cx: x(k), cy: y(v), r: 3.6, style: `fill:${name === "ITEM" ? "var(--paper);stroke:var(--nesterov);stroke-width:1.8" : colour}`, class: "certified" }, svg);
        make("title", {}, mark, `${label}, K = ${k}: ${short(v)}, certified`);
      }
      const tail = line[line.length - 1];
      if (name === "designed") { // no curve: its points are named where they stand
        make("text", { x: x(tail[0]) - 9, y: y(tail[1]) + 16, "text-anchor": "end" }, svg, label);
        continue;
      }
      const end = ends.find((e) => e[1] === name)[0] - over;
      make("path", { class: "leader", style: `stroke:${colour}`, d: `M${x(tail[0]) + 4} ${y(tail[1])}L${W - RIGHT + 14} ${end}h5` }, svg);
      make("text", { x: W - RIGHT + 22, y: end + 4 }, svg, label);
    }
    return lines;
  }

  const overGD = (rstar, share) => curve("Algorithm 1", axis("rstar")[rstar], axis("share")[share])[at.K] / curve("GD 1/L-bar")[at.K] || NaN;

  /* Theorem 1 says "below one"; each square holds Algorithm 1's worst case over GD's. */
  function map() {
    const svg = root.querySelector("[data-map]"), columns = axis("share").length, rows = axis("rstar").length;
    const left = 46, top = 24, wide = (300 - left) / columns, high = (H - top - BOTTOM) / rows;
    svg.setAttribute("viewBox", `0 0 304 ${H}`);
    svg.replaceChildren();
    let below = 0;
    for (let r = 0; r < rows; r++) {
      const yAt = top + (rows - 1 - r) * high;
      make("text", { class: "tick", x: left - 6, y: yAt + high / 2 + 4, "text-anchor": "end" }, svg, axis("rstar")[r]);
      for (let s = 0; s < columns; s++) {
        const found = overGD(r, s), here = r === at.rstar && s === at.share;
        below += found < 1 - DIGITS;
        const cell = make("g", { class: found < 1 - DIGITS ? "cell below" : "cell", "data-cell": `${r} ${s}` }, svg);
        make("rect", { x: left + s * wide + 1, y: yAt + 1, width: wide - 2, height: high - 2, rx: 3 }, cell);
        make("text", { x: left + (s + 0.5) * wide, y: yAt + high / 2 + 4, "text-anchor": "middle" }, cell, !(found > 0) ? "?" : found >= 100 ? "> 99" : found < 0.001 ? "< 0.001" : found < 0.095 ? String(Number(found.toPrecision(2))) : found.toFixed(2));
        if (here) make("circle", { class: "here", cx: left + (s + 1) * wide - 11, cy: yAt + high / 2, r: 5 }, cell);
        cell.addEventListener("click", () => { at.rstar = r; at.share = s; refresh(); Explorer.share("worst", values()); });
      }
    }
    axis("share").forEach((v, s) => make("text", { class: "tick", x: left + (s + 0.5) * wide, y: H - BOTTOM + 17, "text-anchor": "middle" }, svg, v));
    make("text", { class: "tick", x: (left + 300) / 2, y: H - 6, "text-anchor": "middle" }, svg, "switch after this share of K");
    make("text", { class: "tick", x: 2, y: 13 }, svg, "R* / R\u2080");
    make("text", { x: left + 6, y: 13 }, svg, "Algorithm 1 over GD (shaded: below 1)");
    svg.setAttribute("aria-label", `Map of Theorem 1 for K = ${value("K")}: Algorithm 1's worst case is below that of gradient descent in ${below} of ${rows * columns} squares`);
  }

  function tell(lines) {
    const here = lines.map(([m, p]) => [(p.find((q) => q[0] === value("K")) || [])[1], m]).filter((e) => e[0] > 0).sort((a, b) => a[0] - b[0]);
    const [best, second] = here, of = (name) => here.find((e) => e[1][0] === name);
    const ours = of("Algorithm 1"), gd = of("GD 1/L-bar"), over = ours && gd ? ours[0] / gd[0] : NaN;
    const is = best[1][0] === "designed" ? "have" : "has", times = (v) => `${v < 1.095 ? v.toFixed(3) : v < 10 ? v.toFixed(2) : Math.round(v)} times`;
    const subject = best[1][0] === "designed" ? "The designed steps" : best[1][0] === "GD best fixed step" ? "GD at the best fixed step" : best[1][1];
    let text = `${subject} ${is} the smallest worst case after ${value("K")} rounds: ${short(best[0])}, ${times(second[0] / best[0])} below ${second[1][0] === "GD best fixed step" || second[1][0] === "designed" ? "the " : ""}${second[1][1]}. `;
    text += !apart() ? "The devices are alike, so Algorithm 1 is GD at 1/L\u0304."
      : over < 1 - DIGITS ? `Algorithm 1 is ${times(1 / over)} below GD at 1/L\u0304, so Theorem 1's inequality is true here.`
      : !(over > 0) ? "Algorithm 1 has no certified point here."
      : over > 1 + DIGITS ? `Algorithm 1 is ${times(over)} above GD at 1/L\u0304, so Theorem 1's inequality is false here.` : "Algorithm 1 and GD at 1/L\u0304 have the same worst case here, to the digits kept.";
    root.querySelector("[data-told]").textContent = text;
    root.querySelector("[data-ratios]").textContent = `Only ratios matter. Here L\u2082/L\u2081 = ${Number((value("L2") / value("L1")).toPrecision(2))}, \u03bc/L\u0304 = ${value("mu")} and R*/R\u2080 = ${value("rstar")}. The sliders stop where worst cases were computed.`;
    const made = data.made || {}, versions = made.versions || {};
    const proof = root.querySelector("[data-certified]"), command = document.createElement("code");
    proof.textContent = "Every point is proved by a certificate in exact fractions. Lines between points only join them: no number between two points is claimed. " +
      "Diamonds are steps designed for that one point. They were searched for at L\u2082/L\u2081 = 9 only, a minute each, and are shown where they beat the best fixed step.";
    command.textContent = made.command;
    if (made.commit) proof.append(" Made by ", command, ` at commit ${made.commit}, ownstep ${versions.ownstep}, clarabel ${versions.clarabel}.`);
  }

  function refresh() {
    for (const [name, , label] of SLIDERS) {
      const { input, out } = inputs[name];
      input.value = at[name];
      out.textContent = value(name);
      input.setAttribute("aria-valuetext", `${label} ${value(name)}`);
    }
    tell(curves());
    map();
  }

  function start(host, kept) {
    root = host;
    data = JSON.parse(document.getElementById("worst-cases").textContent);
    at = {};
    inputs = {};
    const controls = root.querySelector(".controls");
    for (const [name, , label] of SLIDERS) {
      const asked = (kept || {})[name];
      at[name] = snap(name, Number.isFinite(asked) ? asked : FIRST[name]);
      const row = document.createElement("label"), input = document.createElement("input"), out = document.createElement("output"), words = document.createElement("span");
      Object.assign(input, { type: "range", min: 0, max: axis(name).length - 1, step: 1 });
      input.dataset.axis = name;
      input.addEventListener("input", () => { at[name] = Number(input.value); refresh(); });
      input.addEventListener("change", () => Explorer.share("worst", values()));
      words.textContent = label;
      row.append(words, input, out);
      controls.append(row);
      inputs[name] = { input, out };
    }
    refresh();
    addEventListener("resize", refresh);
  }
  return { start, redraw: refresh };
})();
