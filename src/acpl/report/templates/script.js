"use strict";
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  for (const tabs of document.querySelectorAll("[data-tabs]")) {
    const buttons = [...tabs.querySelectorAll("button")];
    for (const button of buttons) {
      button.addEventListener("click", () => {
        for (const other of buttons) {
          other.setAttribute("aria-selected", String(other === button));
          document.getElementById(other.dataset.panel).hidden = other !== button;
        }
      });
    }
  }

  const source = document.getElementById("data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const PAGE = innerWidth < 600 ? 6 : 12;
  const many = data.task === "multi-label";

  /* Every text goes in as text: a label or a file name that looks like HTML stays what it is. */
  const make = (tag, kind, text) => {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const names = (places) => (places.length ? places.map((place) => data.classes[place]).join(", ") : many ? "no finding" : "none");
  const percent = (value) => (value === null ? "–" : `${Math.round(100 * value)} %`);
  const picture = (store, id, alt) => {
    const image = make("img");
    if (store[id]) image.src = `data:image/webp;base64,${store[id]}`;
    image.alt = alt;
    image.decoding = "async";
    return image;
  };
  const meter = (value) => {
    const cell = make("span", "meter", percent(value));
    cell.style.setProperty("--w", `${100 * (value ?? 0)}%`);
    return cell;
  };

  const pseudoLabel = (card) => {
    const known = card.truth !== null;
    const box = make("article", `sample ${known ? (card.right ? "right" : "wrong") : ""}`);
    box.append(picture(data.pictures, card.id, `image ${card.name}, pseudo-label ${names(card.said)}`));
    const side = make("div");
    const who = make("div", "who", card.name);
    who.title = card.name;
    const chips = make("div", "chips");
    if (!card.said.length) chips.append(make("span", `chip ${known ? (card.truth.length ? "wrong" : "right") : ""}`, `${known ? (card.truth.length ? "✗ " : "✓ ") : ""}${many ? "no finding" : "none"}`));
    for (const place of card.said) {
      const hit = known && card.truth.includes(place);
      chips.append(make("span", `chip ${known ? (hit ? "right" : "wrong") : ""}`, `${known ? (hit ? "✓ " : "✗ ") : ""}${data.classes[place]}`));
    }
    if (known) for (const place of card.truth) if (!card.said.includes(place)) chips.append(make("span", "chip missing", `truly ${data.classes[place]}`));
    const bars = make("div", "bars");
    for (const word of ["", "model", "neighb.", "label"]) bars.append(make("span", "head", word));
    for (const [place, model, neighbours, label] of card.rows) bars.append(make("span", "class", data.classes[place]), meter(model), meter(neighbours), meter(label));
    side.append(who, chips, bars);
    box.append(side);
    const foot = make("div", "foot");
    foot.append(make("span", "", `stage ${card.stage}`));
    if (card.density !== null) foot.append(make("span", "", `density ${card.density.toFixed(3)}`));
    if (card.gap !== null) foot.append(make("span", "", `disagreement ${card.gap.toFixed(2)}`));
    if (card.anchor) foot.append(make("span", "", "became an anchor"));
    box.append(foot);
    if (card.anchors.length) {
      const strip = make("div", "anchors");
      strip.append(make("b", "", "nearest"));
      for (const anchor of card.anchors) {
        const one = make("div");
        const said = anchor.said === null ? "label unknown" : names(anchor.said);
        one.append(picture(data.pictures, anchor.id, `anchor ${anchor.name}`), make("span", "", `${said}${anchor.given ? "" : " (pseudo)"}`));
        one.title = anchor.name;
        strip.append(one);
      }
      box.append(strip);
    }
    return box;
  };

  const mistake = (card) => {
    const box = make("article", "sample wrong");
    box.append(picture(data.mistakePictures, card.id, `image ${card.name}, truly ${names(card.truth)}, called ${names(card.said)}`));
    const side = make("div");
    const who = make("div", "who", card.name);
    who.title = card.name;
    const chips = make("div", "chips");
    const called = data.classes[card.class];
    chips.append(make("span", "chip wrong", many ? (card.kind === "miss" ? `✗ missed ${called}` : `✗ false alarm: ${called}`) : `✗ called ${names(card.said)}`));
    chips.append(make("span", "chip", `truly ${names(card.truth)}`));
    const bars = make("div", "bars single");
    for (const [place, score] of card.rows) bars.append(make("span", "class", data.classes[place]), meter(score));
    side.append(who, chips, bars);
    box.append(side);
    return box;
  };

  /* A gallery: cards that pass its filters, a page at a time, so that hundreds of pictures cost nothing until asked for. */
  const gallery = (name, draw, chosen) => {
    const place = document.getElementById(name);
    if (!place) return;
    const cards = place.querySelector(".cards");
    const more = place.querySelector(".more");
    const count = place.querySelector(".count");
    let shown = PAGE;
    const show = (reset) => {
      if (reset) shown = PAGE;
      const found = chosen(place);
      cards.replaceChildren(...found.slice(0, shown).map(draw));
      if (!found.length) cards.append(make("p", "empty", "No picture was kept that fits this choice."));
      more.hidden = shown >= found.length;
      count.textContent = `${Math.min(shown, found.length)} of ${found.length} shown`;
    };
    more.addEventListener("click", () => { shown += PAGE; show(false); });
    for (const control of place.querySelectorAll("select, input")) control.addEventListener("change", () => show(true));
    for (const button of place.querySelectorAll(".tabs button")) {
      button.addEventListener("click", () => {
        for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
        show(true);
      });
    }
    show(true);
  };
  const value = (place, field) => place.querySelector(`[data-filter="${field}"]`)?.value ?? "";
  const pressed = (place) => place.querySelector('.tabs [aria-pressed="true"]')?.dataset.kind;
  const fits = (card, wanted) => wanted === "" || (wanted === "none" ? !card.said.length : card.said.includes(Number(wanted)));

  gallery("pseudo-labels-gallery", pseudoLabel, (place) => {
    const kind = pressed(place);
    const only = place.querySelector('[data-filter="wrong"]')?.checked;
    return data.cards
      .filter((card) => kind in card.rank && fits(card, value(place, "class")))
      .filter((card) => value(place, "stage") === "" || card.stage === Number(value(place, "stage")))
      .filter((card) => !only || card.right === false)
      .sort((a, b) => a.rank[kind] - b.rank[kind] || a.stage - b.stage);
  });
  gallery("mistakes-gallery", mistake, (place) => {
    const kind = pressed(place);
    return data.mistakes
      .filter((card) => (!kind || card.kind === kind) && (value(place, "class") === "" || card.class === Number(value(place, "class"))))
      .map((card, rank) => [card, rank])
      .sort((a, b) => sureness(b[0]) - sureness(a[0]) || a[1] - b[1])
      .map(([card]) => card);
  });
  function sureness(card) {
    const own = card.rows.find(([place]) => place === card.class)[1];
    if (many) return card.kind === "miss" ? 1 - own : own;
    return Math.max(...card.rows.map(([, score]) => score));
  }
})();
