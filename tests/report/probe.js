/* Opens a page in a frame of some width, waits until it and its fonts are ready, runs a script on it, and reports what went wrong. */
"use strict";
function probe(spec) {
  const watch = "<script>window.wrong = [];" +
    "addEventListener('error', (e) => wrong.push(e.message || String(e.target && e.target.tagName)), true);" +
    "addEventListener('unhandledrejection', (e) => wrong.push(String(e.reason)));" +
    "for (const k of ['error', 'warn']) console[k] = (...a) => wrong.push(k + ': ' + a.join(' '));<\/script>";
  return new Promise((resolve) => {
    const frame = document.createElement("iframe"), began = Date.now();
    frame.style.cssText = `width: ${spec.width}px; height: 900px; border: 0`;
    frame.srcdoc = spec.html.replace("<head>", () => "<head>" + watch);
    document.body.append(frame);
    const end = (value) => resolve({ value, wrong: frame.contentWindow.wrong || ["the page did not start"] });
    const look = () => {
      const page = frame.contentDocument;
      const ready = page && page.documentElement && page.documentElement.dataset.ready;
      if (!ready && Date.now() - began < 30000) { setTimeout(look, 30); return; }
      if (!ready) { end(null); return; }
      page.fonts.ready.then(() => new Function("w", "d", spec.script)(frame.contentWindow, page)).then(end, (e) => end("failed: " + e));
    };
    setTimeout(look, 30);
  });
}
