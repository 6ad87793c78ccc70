/* The worst case: curves of the exact worst case over K, from a grid that was computed once. Sliders snap to the grid. */
"use strict";
const Worst = (() => {
  const NS = "http://www.w3.org/2000/svg", W = 640, H = 340, LEFT = 56, RIGHT = 158, TOP = 14, BOTTOM = 40;
  const COLOURS = { "GD 1/L-bar": "var(--gd)", "Algorithm 1": "var(--ours)", "GD best fixed step": "var(--tuned)", "Nesterov": "var(--nesterov)", "ITEM": "var(--lbfgs)" };
  const AXES = [["ratio", "L\u2082 / L\u2081"], ["mu", "\u03bc / L\u0304"], ["rstar", "R* / R\u2080"], ["share", "local rounds, share of K"]];
  let data, root, at;

  const make = (tag, attributes, parent) => {
    const node = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (parent) parent.append(node);
    return node;
  };
  const axis = (name) => data.axes[name];
  const key = (method) => ["ratio", "mu", "rstar"].map((n) => axis(n)[at[n]]).concat(method === "Algorithm 1" ? [axis("share")[at.share]] : []).join("|");
  const curve = (method) => data.curves[method][key(method)];

  function draw() {
    const svg = root.querySelector("svg"), K = axis("K");
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.replaceChildren();
    const lines = Object.keys(COLOURS).filter((m) => data.curves[m] && curve(m)).map((m) => [m, curve(m)]);
    const all = lines.flatMap(([, c]) => c.upper).filter((v) => v > 0);
    const low = Math.floor(Math.log10(Math.min(...all))), high = Math.ceil(Math.log10(Math.max(...all)));
    const x = (k) => LEFT + (W - LEFT - RIGHT) * (k - K[0]) / (K[K.length - 1] - K[0]);
    const y = (v) => TOP + (H - TOP - BOTTOM) * (high - Math.log10(v)) / Math.max(1, high - low);
    for (let p = low; p <= high; p++) {
      make("path", { class: "grid", d: `M${LEFT} ${y(10 ** p)}H${W - RIGHT}` }, svg);
      make("text", { class: "tick", x: LEFT - 6, y: y(10 ** p) + 4, "text-anchor": "end" }, svg).textContent = "10" + String(p).replace(/./g, (c) => "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"["-0123456789".indexOf(c)]);
    }
    for (const k of K) make("text", { class: "tick", x: x(k), y: H - BOTTOM + 17, "text-anchor": "middle" }, svg).textContent = k;
    make("text", { class: "tick", x: (LEFT + W - RIGHT) / 2, y: H - 6, "text-anchor": "middle" }, svg).textContent = "rounds K";
    const ends = lines.map(([m, c]) => [y(c.upper[c.upper.length - 1]), m]).sort((a, b) => a[0] - b[0]);
    ends.forEach((e, i) => { if (i && e[0] < ends[i - 1][0] + 16) e[0] = ends[i - 1][0] + 16; });
    for (const [m, c] of lines) {
      make("path", { class: "trail", style: `stroke:${COLOURS[m]}`, d: "M" + c.upper.map((v, i) => `${x(K[i]).toFixed(1)} ${y(v).toFixed(1)}`).join("L") }, svg);
      c.upper.forEach((v, i) => {
        const dot = make("circle", { cx: x(K[i]), cy: y(v), r: c.certified[i] ? 4.5 : 2.2, class: c.certified[i] ? "certified" : "", style: `fill:${COLOURS[m]}` }, svg);
        make("title", {}, dot).textContent = `${m}, K = ${K[i]}: ${v}${c.certified[i] ? ", certified" : ""}`;
      });
      const end = ends.find((e) => e[1] === m)[0];
      make("path", { class: "trail", style: `stroke:${COLOURS[m]}`, d: `M${W - RIGHT + 4} ${end}h9` }, svg);
      make("text", { x: W - RIGHT + 18, y: end + 4 }, svg).textContent = m;
    }
    tell(lines);
  }

  function tell(lines) {
    const last = lines.map(([m, c]) => [c.upper[c.upper.length - 1], m]).sort((a, b) => a[0] - b[0]);
    const K = axis("K"), ours = last.find((e) => e[1] === "Algorithm 1"), gd = last.find((e) => e[1] === "GD 1/L-bar");
    let text = `After ${K[K.length - 1]} rounds ${last[0][1]} has the smallest worst case, ${last[0][0]}. `;
    if (ours && gd) text += `Algorithm 1 has ${(ours[0] / gd[0]).toFixed(2)} times that of GD at 1/L\u0304` + (ours[0] < gd[0] ? "." : ": it is worse here.");
    root.querySelector("[data-told]").textContent = text + " Points are exact; the lines between them only join them. Large points are certified with a proof.";
  }

  function start(host, kept) {
    root = host;
    data = JSON.parse(document.getElementById("worst-cases").textContent);
    at = Object.assign(Object.fromEntries(AXES.map(([n]) => [n, Math.floor(axis(n).length / 2)])), kept || {});
    const controls = root.querySelector(".controls");
    for (const [name, label] of AXES) {
      at[name] = Math.min(at[name], axis(name).length - 1);
      const row = document.createElement("label"), input = document.createElement("input"), out = document.createElement("output");
      Object.assign(input, { type: "range", min: 0, max: axis(name).length - 1, step: 1, value: at[name] });
      const show = () => { out.textContent = axis(name)[at[name]]; input.setAttribute("aria-valuetext", `${label} ${axis(name)[at[name]]}`); };
      input.addEventListener("input", () => { at[name] = Number(input.value); show(); draw(); });
      input.addEventListener("change", () => Explorer.share("worst", at));
      const words = document.createElement("span");
      words.textContent = label;
      row.append(words, input, out);
      controls.append(row);
      show();
    }
    draw();
  }
  return { start };
})();
