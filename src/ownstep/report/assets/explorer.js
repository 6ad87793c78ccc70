/* The explorer: three tabs on one component, no server. What is set stands in the address, so that it can be sent. */
"use strict";
const Explorer = (() => {
  const box = document.getElementById("explorer");
  let saved = {};

  const decode = () => {
    const found = /[#&]explorer=([^&]*)/.exec(location.hash);
    try { return found ? JSON.parse(decodeURIComponent(found[1])) : {}; } catch (_) { return {}; }
  };

  /* Keeps a tab's state in the address; a page that may not change its address keeps it for itself. */
  function share(tab, state) {
    saved = { ...saved, tab, [tab]: JSON.parse(JSON.stringify(state, (_, v) => (typeof v === "number" ? Number(v.toPrecision(5)) : v))) };
    try { history.replaceState(null, "", "#explorer=" + encodeURIComponent(JSON.stringify(saved))); } catch (_) { /* about:srcdoc */ }
  }

  function open(name) {
    for (const button of box.querySelectorAll('[role="tab"]')) {
      const mine = button.dataset.tab === name;
      button.setAttribute("aria-selected", String(mine));
      button.tabIndex = mine ? 0 : -1;
      document.getElementById(button.getAttribute("aria-controls")).hidden = !mine;
    }
    if (name === "gain") Gain.redraw();
    if (name === "worst") Worst.redraw();
  }

  function start() {
    if (!box) return;
    saved = decode();
    const tabs = [...box.querySelectorAll('[role="tab"]')];
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => { open(tab.dataset.tab); saved.tab = tab.dataset.tab; });
      tab.addEventListener("keydown", (e) => {
        const to = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
        if (!to) return;
        const next = tabs[(i + to + tabs.length) % tabs.length];
        next.focus();
        next.click();
      });
    });
    Gain.set(saved.gain);
    Race.start(document.getElementById("tab-race"), saved.race);
    if (document.getElementById("worst-cases")) Worst.start(document.getElementById("tab-worst"), saved.worst);
    open(tabs.some((t) => t.dataset.tab === saved.tab) ? saved.tab : "race");
    if (location.hash.includes("explorer=")) box.scrollIntoView();
  }
  return { start, share, open, state: () => saved };
})();
