// Replaces the marked parts of a page when its run has something new, every few
// seconds; without this script, reloading does the same.
"use strict";

const SECOND = 1000;
const UNITS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
const connection = document.getElementById("connection");
let busy = false;

function age(seconds) {
  for (const [length, unit] of UNITS) {
    const count = Math.floor(seconds / length);
    if (count >= 1) return `${count} ${unit}${count > 1 ? "s" : ""} ago`;
  }
  return "just now";
}

function tick() {
  for (const each of document.querySelectorAll("time[data-age]")) {
    const text = age((Date.now() - Date.parse(each.dateTime)) / SECOND);
    if (each.textContent !== text) each.textContent = text;
  }
}

function replace(old, fresh) {
  if (old.innerHTML === fresh.innerHTML) return;
  const open = new Map();
  for (const each of old.querySelectorAll("details[id]")) open.set(each.id, each.open);
  const held = document.activeElement;
  const focused = held !== null && old.contains(held) ? path(old, held) : null;
  old.replaceChildren(...fresh.childNodes);
  for (const [id, isOpen] of open) {
    const each = document.getElementById(id);
    if (each !== null) each.open = isOpen;
  }
  if (focused !== null) follow(old, focused)?.focus({ preventScroll: true });
}

function path(top, node) {
  const steps = [];
  for (let at = node; at !== top; at = at.parentElement) {
    steps.unshift(Array.prototype.indexOf.call(at.parentElement.children, at));
  }
  return steps;
}

function follow(top, steps) {
  return steps.reduce((at, step) => at?.children[step], top);
}

async function refresh() {
  if (busy) return;
  busy = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of document.querySelectorAll("[data-live]")) {
      const found = fresh.getElementById(old.id);
      if (found === null) {
        location.reload();
        return;
      }
      replace(old, found);
    }
    tick();
    connection.textContent = "live";
  } catch {
    connection.textContent = "not connected: what is shown may be old";
  } finally {
    busy = false;
  }
}

const { every } = document.body.dataset;
if (every !== undefined) setInterval(refresh, Number(every) * SECOND);
setInterval(tick, SECOND);
