// Replaces the parts of the page that changed. Without this script the page does not update.
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

  // Keep a selection, so that the user can copy it.
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

  // A hidden page is not drawn; the latest version of each part waits.
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
  // The object no longer exists: another page reports that.
  source.addEventListener("reload", () => location.reload());
  // The connection may work while the server has no response from the API server.
  const sayHow = () => {
    const old = document.querySelector("#silence p") !== null;
    say(old ? "Not live: no response from the API server" : "Live", old);
  };
  source.onopen = sayHow;
  // A browser reconnects after a lost connection, but not after a refusal.
  source.onerror = () => {
    const refused = source.readyState === EventSource.CLOSED;
    const then = refused ? "closed by the server: open the address that windlass printed" : "lost; reconnecting";
    say(`Not live: the connection is ${then}`, true);
  };
})();
