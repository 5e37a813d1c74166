// Puts what changed in the place of what was. Without this script the page is as it was when it was opened.
"use strict";
(() => {
  const address = document.body.dataset.live;
  const state = document.getElementById("live");
  if (!address || !state || !window.EventSource) return;
  const waiting = new Map();
  let planned = false;

  const say = (text, lost) => {
    state.textContent = text;
    state.classList.toggle("ill", lost);
  };

  // Whoever is copying something is not to lose it.
  const isSelected = (part) => {
    const selection = getSelection();
    return selection.type === "Range" && part.contains(selection.anchorNode);
  };

  const put = (part, html) => {
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...part.querySelectorAll("details[open]")].map((details) => details.id);
    part.innerHTML = html;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };

  const draw = () => {
    planned = false;
    for (const [id, html] of waiting) {
      const part = document.getElementById(id);
      if (part && isSelected(part)) continue;
      waiting.delete(id);
      if (part) put(part, html);
    }
    if (waiting.size) setTimeout(plan, 1000);
    if (source.readyState === EventSource.OPEN) sayHow();
  };

  // A page that nobody sees is not drawn; the last of each part waits.
  const plan = () => {
    if (planned) return;
    planned = true;
    requestAnimationFrame(draw);
  };

  const source = new EventSource(address);
  source.addEventListener("part", (event) => {
    const { id, html } = JSON.parse(event.data);
    waiting.set(id, html);
    plan();
  });
  // What it shows is gone: the page that says so is another.
  source.addEventListener("anew", () => location.reload());
  // The page may be told all there is, and still be old: what tells it hears nothing itself.
  const sayHow = () => {
    const old = document.querySelector("#silence p") !== null;
    say(old ? "Not live: nothing is heard of the API server" : "Live", old);
  };
  source.onopen = sayHow;
  // A browser tries again what was cut off, and not what was refused.
  source.onerror = () => {
    const refused = source.readyState === EventSource.CLOSED;
    const then = refused ? "refused: open the address that windlass prints" : "lost, and tried again";
    say(`Not live: the connection is ${then}`, true);
  };
})();
