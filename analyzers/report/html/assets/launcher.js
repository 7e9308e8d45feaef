"use strict";
// Opens the Perfetto UI, waits until it answers, and sends it the timeline.
const button = document.getElementById("open");
const state = document.getElementById("state");
const ui = button.dataset.ui;
const origin = new URL(ui).origin;
const PING_EVERY_MS = 100;
const GIVE_UP_AFTER_MS = 60000;

async function openTimeline() {
  const target = window.open(ui);
  if (!target) {
    state.textContent = "The browser did not open a window: allow it for this page.";
    return;
  }
  state.textContent = "Waiting for " + origin + " ...";
  const buffer = await (await fetch("timeline.pftrace")).arrayBuffer();
  const started = performance.now();
  const timer = setInterval(() => {
    if (performance.now() - started > GIVE_UP_AFTER_MS) {
      clearInterval(timer);
      state.textContent = origin + " did not answer: is there a network?";
      return;
    }
    target.postMessage("PING", origin);
  }, PING_EVERY_MS);
  window.addEventListener("message", function answered(event) {
    if (event.source !== target || event.origin !== origin || event.data !== "PONG") return;
    window.removeEventListener("message", answered);
    clearInterval(timer);
    target.postMessage({ perfetto: { buffer, title: "dsv4bench", keepApiOpen: false } }, origin, [buffer]);
    state.textContent = "Sent to " + origin + ".";
  });
}

button.addEventListener("click", openTimeline);
