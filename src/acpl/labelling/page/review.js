"use strict";
// Names of images and classes come from files: they are only ever set as text.
const KEYS = "1234567890qwertzopasdfghjkl".split("");
const $ = (id) => document.getElementById(id);
const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};
const percent = (share) => `${Math.round(100 * share)} %`;
const address = (id) => `image/${id}.png`;

let review = null;
let place = 0;
let chosen = new Set();
let busy = false;

const item = () => review.items[place];
const decided = (id) => review.decided[String(id)];
const single = () => review.task === "multi-class";
const names = (places) => places.map((at) => review.classes[at]).join(", ") || "none";

function start(at) {
  place = Math.max(0, Math.min(at, review.items.length - 1));
  const labels = decided(item().id);
  chosen = new Set(labels ? labels.map((name) => review.classes.indexOf(name)) : item().proposal);
  show();
}

function show() {
  const now = item();
  const labels = decided(now.id);
  $("image").src = address(now.id);
  $("image").alt = now.image;
  $("caption").textContent = `${now.image} · ${now.group} · density ${now.density.toFixed(3)}${now.suggested ? " · suggested" : ""}`;
  $("origin").textContent = now.origin === "model" ? "Proposed by the model" : `Pseudo-label of ${now.origin}`;
  $("state").textContent = labels ? `✓ saved: ${labels.join(", ") || "none"}` : "";
  $("classes").replaceChildren(...review.classes.map((name, at) => {
    const button = make("button");
    button.type = "button";
    button.setAttribute("aria-pressed", String(chosen.has(at)));
    button.append(make("kbd", "", KEYS[at] || ""), make("span", "name", name),
      make("span", "says", `model ${percent(now.model[at])} · near ${percent(now.neighbours[at])}`));
    button.addEventListener("click", () => toggle(at));
    return button;
  }));
  $("nearest").replaceChildren(...now.nearest.map((other) => {
    const card = make("div");
    const image = make("img");
    image.src = address(other.id);
    image.alt = other.image;
    card.append(image, make("b", "", names(other.labels)), make("div", "", other.image));
    return card;
  }));
  count();
  if (review.items[place + 1]) new Image().src = address(review.items[place + 1].id);
}

function count() {
  const total = review.items.length;
  const done = review.items.filter((other) => decided(other.id)).length;
  $("progress").textContent = `image ${place + 1} of ${total} · ${done} reviewed`;
  $("done").style.width = `${100 * done / total}%`;
}

function toggle(at) {
  if (at >= review.classes.length) return;
  if (single()) chosen = new Set([at]);
  else if (!chosen.delete(at)) chosen.add(at);
  show();
}

async function send(path, body) {
  if (busy) return null;
  busy = true;
  try {
    const answer = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(await answer.text());
    $("problem").hidden = true;
    return await answer.json();
  } catch (error) {
    $("problem").textContent = `Not saved: ${error.message.trim()}. Is acpl review still running?`;
    $("problem").hidden = false;
    return null;
  } finally {
    busy = false;
  }
}

async function accept() {
  const now = item();
  const labels = [...chosen].sort((a, b) => a - b).map((at) => review.classes[at]);
  const saved = await send("decide", { id: now.id, labels });
  if (!saved) return;
  review.decided[String(saved.id)] = saved.labels;
  const open = (other) => !decided(other.id);
  const next = review.items.findIndex((other, at) => at > place && open(other));
  const first = review.items.findIndex(open);
  start(next >= 0 ? next : first >= 0 ? first : place);
}

async function undo() {
  const answer = await send("undo", {});
  if (!answer || answer.id === null) return;
  const fresh = await (await fetch("queue.json")).json();
  review.decided = fresh.decided;
  const at = review.items.findIndex((other) => other.id === answer.id);
  start(at >= 0 ? at : place);
}

document.addEventListener("keydown", (event) => {
  if (!review || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const actions = {
    Enter: accept, ArrowRight: () => start(place + 1), ArrowLeft: () => start(place - 1), u: undo,
    i: () => document.body.classList.toggle("inverted"),
    n: () => { if (!single()) { chosen.clear(); show(); } },
  };
  const action = actions[key] || (KEYS.includes(key) ? () => toggle(KEYS.indexOf(key)) : null);
  if (!action) return;
  event.preventDefault();
  action();
});
$("accept").addEventListener("click", accept);
$("undo").addEventListener("click", undo);
$("back").addEventListener("click", () => start(place - 1));
$("forward").addEventListener("click", () => start(place + 1));

(async () => {
  const answer = await fetch("queue.json");
  review = await answer.json();
  $("title").textContent = review.title;
  $("saved").textContent = review.saved_to;
  $("none").hidden = single();
  const first = review.items.findIndex((other) => !decided(other.id));
  start(first >= 0 ? first : 0);
})();
