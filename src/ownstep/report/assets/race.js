/* The race: two devices in a plane, four methods as dots with trails. Everything is computed here, from six numbers per device. */
"use strict";
const Race = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const SPAN = 6; // the plane reaches from -SPAN to SPAN across
  let W = 640, H = 420; // in pixels of the screen, so that letters keep their size on a phone
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const METHODS = [
    ["gd", "GD, common step 1/L\u0304", "var(--gd)"], ["own", "own steps 1/L\u1d62", "var(--ours)"],
    ["matched", "GD, matched step", "var(--matched)"], ["curvature", "own curvature", "var(--curvature)"],
  ];
  const START = { k: 12, at: null, x: [-4.4, -2.6], w: 0.5, devices: [
    { c: [-0.7, 1.3], L: 3, mu: 0.35, turn: 0.35 }, { c: [1.5, -0.6], L: 0.6, mu: 0.3, turn: 1.9 },
  ] };
  const first = () => Object.assign(clone(START), still ? { k: ROUNDS } : {}); // without motion: the end
  const ROUNDS = 60, EDGE = 0.6; // the level set that a device's handle sits on
  let state, timer = null, root, svg, parts;

  const clone = (value) => JSON.parse(JSON.stringify(value));
  const put = (tag, attributes, parent) => {
    const node = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (parent) parent.append(node);
    return node;
  };
  const sx = (x) => W / 2 + (x / SPAN) * (W / 2), sy = (y) => H / 2 - (y / SPAN) * (W / 2);
  const hessian = ({ L, mu, turn }) => {
    const c = Math.cos(turn), s = Math.sin(turn);
    return [[L * c * c + mu * s * s, (L - mu) * c * s], [(L - mu) * c * s, L * s * s + mu * c * c]];
  };
  const times = (A, v) => [A[0][0] * v[0] + A[0][1] * v[1], A[1][0] * v[0] + A[1][1] * v[1]];
  const solve = (A, b) => {
    const d = A[0][0] * A[1][1] - A[0][1] * A[1][0];
    return [(A[1][1] * b[0] - A[0][1] * b[1]) / d, (A[0][0] * b[1] - A[1][0] * b[0]) / d];
  };
  const gradient = (d, x) => times(hessian(d), [x[0] - d.c[0], x[1] - d.c[1]]);
  const weights = () => [state.w, 1 - state.w];
  const mixed = (coefficients, x) => {
    const g = state.devices.map((d) => gradient(d, x));
    return [0, 1].map((j) => coefficients[0] * g[0][j] + coefficients[1] * g[1][j]);
  };
  /* The point where sum_i c_i grad f_i vanishes: of c = w the minimiser, of c = w / L where own steps settle. */
  const balance = (c) => {
    const A = [[0, 0], [0, 0]], b = [0, 0];
    state.devices.forEach((d, i) => {
      const h = hessian(d), v = times(h, d.c);
      for (const r of [0, 1]) { b[r] += c[i] * v[r]; for (const q of [0, 1]) A[r][q] += c[i] * h[r][q]; }
    });
    return solve(A, b);
  };

  function run(method) {
    const w = weights(), L = state.devices.map((d) => d.L), mean = w[0] * L[0] + w[1] * L[1];
    const own = w.map((v, i) => v / L[i]), common = w.map((v) => v / mean);
    const step = own[0] + own[1], matched = w.map((v) => v * step);
    const points = [state.x.slice()];
    for (let k = 0; k < ROUNDS; k++) {
      const x = points[k];
      let move;
      if (method === "curvature") {
        const A = [[0, 0], [0, 0]];
        state.devices.forEach((d, i) => { const h = hessian(d); for (const r of [0, 1]) for (const q of [0, 1]) A[r][q] += w[i] * h[r][q]; });
        move = solve(A, mixed(w, x));
      } else {
        const local = state.at === null || k < state.at;
        move = mixed(method === "gd" ? common : method === "matched" ? matched : local ? own : common, x);
      }
      const next = [x[0] - move[0], x[1] - move[1]];
      points.push(next.every((v) => Math.abs(v) < 1e6) ? next : x.map((v) => Math.sign(v) * 1e6));
    }
    return points;
  }

  function ellipse(d, level) {
    const group = { cx: 0, cy: 0, rx: Math.sqrt(2 * level / d.L) / SPAN * W / 2, ry: Math.sqrt(2 * level / d.mu) / SPAN * W / 2 };
    return { ...group, transform: `translate(${sx(d.c[0])} ${sy(d.c[1])}) rotate(${-d.turn * 180 / Math.PI})` };
  }

  function draw() {
    svg.replaceChildren();
    state.devices.forEach((d, i) => {
      for (const level of [0.15, 0.6, 1.6, 3.4, 6]) put("ellipse", { ...ellipse(d, level), class: `level d${i + 1}` }, svg);
    });
    const best = balance(weights()), drawn = balance(weights().map((w, i) => w / state.devices[i].L));
    const target = put("path", { class: "target", d: `M${sx(best[0]) - 8} ${sy(best[1])}h16m-8 -8v16` }, svg);
    put("title", {}, target).textContent = "the minimiser of all data";
    put("text", { x: sx(best[0]) - 12, y: sy(best[1]) - 10, "text-anchor": "end" }, svg).textContent = "minimiser of all data";
    put("circle", { class: "wrong", cx: sx(drawn[0]), cy: sy(drawn[1]), r: 6 }, svg);
    put("text", { x: sx(drawn[0]) + 12, y: sy(drawn[1]) + 20 }, svg).textContent = "own steps settle here";
    parts = {};
    const last = {};
    for (const [key, name, colour] of METHODS) {
      const points = run(key), seen = points.slice(0, state.k + 1);
      put("path", { class: "trail", style: `stroke:${colour}`, d: "M" + seen.map((p) => `${sx(p[0]).toFixed(1)} ${sy(p[1]).toFixed(1)}`).join("L") }, svg);
      const at = seen[seen.length - 1];
      parts[key] = put("circle", { class: "runner", r: key === "curvature" ? 7 : 6, cx: sx(at[0]), cy: sy(at[1]), style: `fill:${colour}` }, svg);
      put("title", {}, parts[key]).textContent = name;
      last[key] = Math.hypot(at[0] - best[0], at[1] - best[1]);
    }
    handle("start", state.x, "drag the start");
    state.devices.forEach((d, i) => {
      handle(`c${i}`, d.c, `drag device ${i + 1}`);
      const reach = Math.sqrt(2 * EDGE / d.mu);
      handle(`t${i}`, [d.c[0] - reach * Math.sin(d.turn), d.c[1] + reach * Math.cos(d.turn)], `turn and stretch device ${i + 1}`);
    });
    tell(last, Math.hypot(best[0] - drawn[0], best[1] - drawn[1]));
    root.querySelector("[data-k]").value = state.k;
    root.querySelector("[data-round]").textContent = `round ${state.k}`;
    root.querySelector("[data-switch]").textContent = state.at === null ? "switch now" : `switched after round ${state.at}; undo`;
  }

  function handle(name, at, label) {
    const node = put("circle", { class: `handle ${name[0]}`, cx: sx(at[0]), cy: sy(at[1]), r: 9, tabindex: 0, role: "button", "aria-label": label, "data-handle": name }, svg);
    put("title", {}, node).textContent = label;
    const move = (x, y) => {
      const to = [Math.max(-5.6, Math.min(5.6, x)), Math.max(-3.6, Math.min(3.6, y))];
      if (name === "start") state.x = to;
      else if (name[0] === "c") state.devices[name[1]].c = to;
      else {
        const d = state.devices[name[1]], v = [to[0] - d.c[0], to[1] - d.c[1]], far = Math.max(0.4, Math.hypot(...v));
        d.turn = Math.atan2(-v[0], v[1]);
        d.mu = Math.min(d.L, 2 * EDGE / far ** 2);
      }
    };
    node.addEventListener("pointerdown", (down) => {
      down.preventDefault();
      const box = svg.getBoundingClientRect();
      const follow = (e) => { move((e.clientX - box.left - box.width / 2) / (box.width / 2) * SPAN, -(e.clientY - box.top - box.height / 2) / (box.width / 2) * SPAN); draw(); };
      const end = () => { removeEventListener("pointermove", follow); removeEventListener("pointerup", end); share(); };
      addEventListener("pointermove", follow);
      addEventListener("pointerup", end);
    });
    node.addEventListener("keydown", (e) => {
      const by = { ArrowLeft: [-0.2, 0], ArrowRight: [0.2, 0], ArrowUp: [0, 0.2], ArrowDown: [0, -0.2] }[e.key];
      if (!by) return;
      e.preventDefault();
      move(at[0] + by[0], at[1] + by[1]);
      draw();
      svg.querySelector(`[data-handle="${name}"]`).focus();
      share();
    });
  }

  function tell(distance, apart) {
    const text = (v) => (v > 99 ? "far away" : v.toFixed(v < 0.1 ? 3 : 2));
    const parts = METHODS.map(([key, name]) => `${name}: ${text(distance[key])}`);
    root.querySelector("[data-told]").textContent = `After ${state.k} rounds, the distances to the minimiser are: ${parts.join("; ")}. ` +
      (state.at === null ? `Own steps settle ${apart.toFixed(2)} away from it; switch to repair that.` : `Own steps switched after round ${state.at} and go to the minimiser.`);
  }

  function step(by) {
    play(false);
    state.k = Math.max(0, Math.min(ROUNDS, state.k + by));
    draw();
    share();
  }

  function play(on) {
    clearInterval(timer);
    timer = null;
    root.querySelector("[data-play]").textContent = on ? "pause" : "play";
    if (!on || still) return;
    if (state.k >= ROUNDS) state.k = 0;
    timer = setInterval(() => {
      if (state.k >= ROUNDS) return play(false);
      state.k += 1;
      draw();
    }, 160);
  }

  function share() { Explorer.share("race", state); }

  function start(host, saved) {
    root = host;
    svg = root.querySelector("svg");
    state = Object.assign(first(), saved || {});
    const scrub = root.querySelector("[data-k]");
    scrub.max = ROUNDS;
    scrub.addEventListener("input", () => { play(false); state.k = Number(scrub.value); draw(); });
    scrub.addEventListener("change", share);
    root.querySelector("[data-play]").addEventListener("click", () => { play(timer === null); share(); });
    root.querySelector("[data-switch]").addEventListener("click", () => { state.at = state.at === null ? state.k : null; draw(); share(); });
    root.querySelector("[data-reset]").addEventListener("click", () => { play(false); state = first(); draw(); share(); });
    for (const b of root.querySelectorAll("[data-step]")) b.addEventListener("click", () => step(Number(b.dataset.step)));
    const key = root.querySelector(".racers");
    for (const [, name, colour] of METHODS) {
      const item = document.createElement("span"), dot = document.createElement("i");
      dot.style.background = colour;
      item.append(dot, name);
      key.append(item);
    }
    size(svg.clientWidth || W);
    new ResizeObserver(() => { if (Math.abs(svg.clientWidth - W) > 1) size(svg.clientWidth); }).observe(svg);
  }

  function size(width) {
    if (!width) return; // on a tab that is not shown
    W = Math.round(width);
    H = Math.round(Math.max(300, 0.62 * W));
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    draw();
  }
  return { start, state: () => state };
})();
