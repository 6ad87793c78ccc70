/* The explorer stands in a frame: it takes the colours of this page, and the frame takes its height.
   A page on disk has no origin that could be named, so messages are told apart by the window that sent them. */
"use strict";
addEventListener("DOMContentLoaded", () => {
  const frame = document.querySelector("iframe.explorer-frame");
  if (!frame) return;
  const theme = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");
  const colours = () => frame.contentWindow?.postMessage({ theme: theme() }, "*");
  frame.addEventListener("load", colours);
  colours();
  new MutationObserver(colours).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
  addEventListener("message", (e) => {
    const height = e.source === frame.contentWindow ? Number(e.data?.ownstepExplorer) : 0;
    if (height > 200) frame.style.height = `${Math.ceil(height) + 4}px`;
  });
});
