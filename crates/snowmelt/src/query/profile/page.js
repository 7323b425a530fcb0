// One tooltip for all elements with data-tip. Text only: nothing is ever parsed as HTML.
"use strict";
const tip = document.getElementById("tip");
function place(x, y) {
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - width - 8)) + "px";
  tip.style.top = (y + 18 + height > innerHeight ? y - height - 10 : y + 18) + "px";
}
document.addEventListener("mousemove", (event) => {
  const shown = event.target.closest("[data-tip]");
  tip.hidden = !shown;
  if (!shown) return;
  if (tip.textContent !== shown.dataset.tip) tip.textContent = shown.dataset.tip;
  place(event.clientX, event.clientY);
});
document.addEventListener("mouseleave", () => { tip.hidden = true; });
