/* The explorer stands in a frame: it takes the colours of this page, and the frame takes its height. */
"use strict";
addEventListener("DOMContentLoaded", () => {
  const frame = document.querySelector("iframe.explorer-frame");
  if (!frame) return;
  const colours = () => frame.contentWindow.postMessage({ theme: document.body.dataset.mdColorScheme === "slate" ? "dark" : "light" }, "*");
  frame.addEventListener("load", colours);
  new MutationObserver(colours).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
  addEventListener("message", (e) => {
    if (e.source === frame.contentWindow && e.data.ownstepExplorer > 200) frame.style.height = `${Math.ceil(e.data.ownstepExplorer) + 4}px`;
  });
});
