/* Theme, intervals, and the start of everything else. */
"use strict";
(() => {
  const root = document.documentElement, button = document.getElementById("theme"), order = ["auto", "light", "dark"];
  const name = () => { button.firstElementChild.textContent = root.dataset.theme; };
  button.addEventListener("click", () => {
    root.dataset.theme = order[(order.indexOf(root.dataset.theme) + 1) % order.length];
    try { localStorage.setItem("ownstep-theme", root.dataset.theme); } catch (_) { /* a page on disk may have no storage */ }
    name();
    Charts.repaint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => Charts.repaint());
  name();

  /* Intervals of one table on one logarithmic axis, with a line at one: no speed-up. */
  for (const table of document.querySelectorAll("table.numbers")) {
    const cells = [...table.querySelectorAll(".interval")];
    const all = cells.flatMap((c) => [Number(c.dataset.low), Number(c.dataset.high)]).filter((v) => v > 0);
    if (!all.length) continue;
    const low = Math.log(0.97 * Math.min(0.8, ...all)), high = Math.log(1.03 * Math.max(1.25, ...all));
    const at = (v) => (100 * (Math.log(v) - low)) / (high - low) + "%";
    for (const c of cells) {
      const [u, b, i] = ["u", "b", "i"].map((t) => c.appendChild(document.createElement(t)));
      u.style.left = at(1);
      b.style.left = at(Number(c.dataset.low));
      b.style.width = `calc(${at(Number(c.dataset.high))} - ${at(Number(c.dataset.low))})`;
      i.style.left = at(Number(c.dataset.value));
    }
    const one = table.querySelector(".one");
    if (one) one.style.left = at(1);
  }
  /* On a narrow screen settings start closed; printed, everything that is shown is open. */
  if (matchMedia("(max-width: 46rem)").matches) for (const d of document.querySelectorAll("details.settings")) d.open = false;
  addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("details.settings")) d.open = true; });

  Gain.start();
  Explorer.start();
  Charts.start();
  root.dataset.ready = "yes";
})();
