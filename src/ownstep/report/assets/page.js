/* Theme, links to files, and the start of everything else. */
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

  /* The result files lie where they did when the page was made only if the page still lies in its folder. */
  if (decodeURIComponent(location.pathname).split("/").slice(-2)[0] === root.dataset.home && root.dataset.home)
    for (const a of document.querySelectorAll("a[data-file]")) a.href = a.dataset.file;
  /* A link to what is folded away opens it. */
  const unfold = () => {
    const target = location.hash.length > 1 && !location.hash.includes("=") ? document.getElementById(location.hash.slice(1)) : null;
    const folded = target && target.closest("details");
    if (folded && !folded.open) { folded.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", unfold);
  Gain.start();
  Explorer.start();
  Charts.start();
  unfold();
  root.dataset.ready = "yes";
})();
