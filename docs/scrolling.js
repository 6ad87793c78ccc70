/* Code, tables and formulas that are wider than the page can be scrolled with the keyboard too. */
"use strict";
addEventListener("DOMContentLoaded", () => {
  const wide = ".md-typeset pre > code, .md-typeset__scrollwrap, .md-typeset math[display=block]";
  const reachable = () => {
    for (const box of document.querySelectorAll(wide)) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  const content = document.querySelector(".md-content");
  if (content) new ResizeObserver(reachable).observe(content);
  addEventListener("load", reachable);
});
