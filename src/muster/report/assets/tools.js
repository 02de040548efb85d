// Code that both pages share. Output of programs and agents is data and inserted with textContent; no HTML is built from it.
// The page defines NAME (the URL parameter of the chosen item), state, byId and PROMPTS, and the functions readHash, hash, settle,
// drawList, show, all, detailHead, drawDetail and rowBody.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const index = JSON.parse($("#index").textContent);

// ---- small tools ----

function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 10) return `${seconds.toFixed(seconds < 0.995 ? 2 : 1)} s`;
  if (seconds < 60) return `${seconds.toFixed(0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function clock(seconds) {
  if (seconds < 1) return seconds < 0.01 ? "< 0.01 s" : span(seconds);
  const whole = Math.max(0, seconds);
  return `${Math.floor(whole / 60)}:${String(Math.floor(whole % 60)).padStart(2, "0")}`;
}

function when(epoch) {
  const date = new Date(epoch * 1000);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

function size(chars) {
  return chars < 1e6 ? `${Math.ceil(chars / 1000)} KB` : `${(chars / 1e6).toFixed(1)} MB`;
}

function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString()} ${number === 1 ? one : many}`;
}

/** Load a script next to the page, once. fetch does not work on file://. */
const loaded = new Map();
function load(source) {
  if (!loaded.has(source)) {
    loaded.set(source, new Promise((done, failed) => {
      const node = el("script", { src: source });
      node.addEventListener("load", () => { node.remove(); done(); });
      node.addEventListener("error", () => { node.remove(); loaded.delete(source); failed(new Error(`${source} cannot be read`)); });
      document.head.append(node);
    }));
  }
  return loaded.get(source);
}

const parts = new Map();
const recordings = new Map();
/** Called by the files in parts/. */
window.muster = {
  part: (key, value) => parts.set(key, value),
  recording: (key, value) => recordings.set(key, value),
};

async function fetchPart(store, key) {
  await load(`parts/${key}.js`);
  const value = store.get(key);
  if (!value) throw new Error(`parts/${key}.js is malformed`);
  return value;
}

// ---- texts ----

function sized(node, share) {
  node.style.flexGrow = share;
  return node;
}

/** A name with permitted line breaks after punctuation. */
function soft(name) {
  return name.split(/(?<=[_/\[\]-])/).flatMap((piece, at) => (at ? [el("wbr"), piece] : [piece]));
}

function firstWords(text) {
  const line = text.split("\n", 1)[0].replace(/^#+\s*/, "");
  return line.length > 110 ? `${line.slice(0, 109)}…` : line;
}

/** A block for reading: its comments as text, its commands as code. */
function blockText(text) {
  const pieces = [];
  for (const line of text.split("\n")) {
    const isProse = /^\s*#(?!!)/.test(line) && !pieces.at(-1)?.open;
    const last = pieces.at(-1);
    if (last && last.isProse === isProse) last.lines.push(line);
    else pieces.push({ isProse, lines: [line] });
    const here = pieces.at(-1);
    if (!isProse) {
      // A # in a here-document does not begin a comment.
      const begins = /<<-?\s*(['"]?)([A-Za-z_]\w*)\1/.exec(line);
      if (here.open && line.trim() === here.open) here.open = "";
      else if (begins && !here.open) here.open = begins[2];
    }
  }
  return el("div", { class: "text" }, pieces.map((piece) => piece.isProse
    ? el("p", {}, piece.lines.map((line) => line.replace(/^\s*#+ ?/, "")).join(" "))
    : el("pre", {}, piece.lines.join("\n"))));
}

/** Coloured text. Classes and colours are computed from numbers, so the text cannot inject any. */
function runs(node, list) {
  for (const run of list) {
    if (typeof run === "string") { node.append(run); continue; }
    const [text, flags, front, back] = run;
    const piece = el("span", {}, String(text));
    const names = ["bold", "dim", "italic", "underline", "strike"].filter((_, bit) => flags & (1 << bit));
    if (front >= 0 && front < 16) names.push(`f${Number(front)}`);
    else if (front === -2) names.push("fr");
    else if (front >= 16) piece.style.color = colour(front);
    if (back >= 0 && back < 16) names.push(`b${Number(back)}`);
    else if (back === -2) names.push("br");
    else if (back >= 16) piece.style.backgroundColor = colour(back);
    piece.className = names.join(" ");
    node.append(piece);
  }
  return node;
}

function colour(number) {
  if (number >= 256) { const rgb = number - 256; return `rgb(${(rgb >> 16) & 255} ${(rgb >> 8) & 255} ${rgb & 255})`; }
  if (number >= 232) { const grey = 8 + (number - 232) * 10; return `rgb(${grey} ${grey} ${grey})`; }
  const step = (value) => (value ? 55 + value * 40 : 0);
  const cube = number - 16;
  return `rgb(${step(Math.floor(cube / 36))} ${step(Math.floor(cube / 6) % 6)} ${step(cube % 6)})`;
}

// ---- transcripts ----

function transcript(part, cards) {
  const list = el("ol", { class: "rows" });
  let current = null;
  part.rows.forEach((row, at) => {
    if (part.cut && part.cut.at === at) list.append(gap(part));
    const node = el("li", { class: `row k-${row.k}` });
    if (row.k === "command" || row.k === "terminal") current = row.n;
    const covering = row.t === null ? null : coveringCard(cards, row);
    const time = row.t === null ? "" : row.t.toFixed(1);
    node.append(covering ? el("button", {
      type: "button", class: "at", title: `Show ${covering.recording.name} at this moment`,
      onclick: () => covering.play(Math.max(0, row.t - covering.recording.begin)),
    }, time) : el("span", { class: "at" }, time));
    node.append(el("span", { class: "prompt", "aria-hidden": "true" }, PROMPTS[row.k] ?? ""));
    node.append(rowBody(row, cards, current));
    if (row.t !== null) node.dataset.t = row.t;
    list.append(node);
  });
  if (part.cut && part.cut.at >= part.rows.length) list.append(gap(part));
  if (!part.rows.length) list.append(el("li", { class: "row k-note" }, el("span", { class: "at" }), el("span", { class: "prompt" }), el("div", { class: "what" }, "There is no transcript.")));
  return list;
}

function gap(part) {
  return el("li", { class: "row gap" }, el("span", { class: "at" }), el("span", { class: "prompt" }, "⋮"),
    el("div", { class: "what" }, `About ${size(part.cut.chars)} are left out here. The complete transcript is in `, el("code", {}, part.path)));
}

/** The recording that was running at the time of a row; if there are several, the one that started last. */
function coveringCard(cards, row) {
  let found = null;
  for (const one of cards) {
    const { begin, length, part } = one.recording;
    if (!part || begin === null || length === undefined || row.t < begin || row.t > begin + length + 0.05) continue;
    if (!found || begin >= found.recording.begin) found = one;
  }
  return found;
}

// ---- recordings ----

let playerReady = null;
function loadPlayer() {
  if (!index.player) return Promise.reject(new Error("the player is not installed"));
  if (!playerReady) {
    document.head.append(el("link", { rel: "stylesheet", href: "player/asciinema-player.css" }));
    playerReady = load("player/asciinema-player.min.js").catch((problem) => { playerReady = null; throw problem; });
  }
  return playerReady;
}

function card(recording) {
  const screen = el("div", { class: "screen" });
  const still = runs(el("pre", { class: "still", tabindex: "0", "aria-label": "The last screen" }), recording.screen ?? []);
  const button = el("button", { type: "button", class: "play", onclick: () => one.play() }, "Play");
  const stopper = el("button", { type: "button", class: "quiet", hidden: true, title: "Close the player", "aria-label": "Close the player", onclick: () => { one.stop(); button.focus(); } }, "✕");
  const node = el("figure", { class: "film" },
    el("figcaption", {},
      el("b", {}, recording.name), recording.command && recording.command !== recording.name ? el("code", {}, recording.command) : null,
      el("small", {}, recording.length !== undefined ? clock(recording.length) : ""),
      recording.exit ? el("span", { class: "badge" }, `exit ${recording.exit}`) : null,
      recording.part && index.player ? button : null, stopper),
    recording.error ? el("p", { class: "problem" }, recording.error) : null,
    screen);
  const one = { recording, node, player: null, wanted: 0, timer: 0 };
  const showStill = () => screen.replaceChildren(...(recording.screen?.length ? [still] : recording.part && recording.screen ? [el("p", { class: "none" }, "Its last screen was empty.")] : []),
    ...(recording.part && !index.player ? [el("p", { class: "none" }, "To play it here, run ", el("code", {}, index.install), " and build the report again.")] : []));

  one.play = async (at) => {
    if (!recording.part || !index.player) { node.scrollIntoView({ block: "nearest" }); return; }
    film.cards.filter((other) => other !== one).forEach((other) => other.stop());
    const turn = ++one.wanted;
    try {
      if (!one.player) {
        button.disabled = true;
        await loadPlayer();
        const { cast } = await fetchPart(recordings, recording.part);
        if (turn !== one.wanted) return;
        const place = el("div", { class: "player" });
        place.style.setProperty("--ratio", (cast[0].width * 0.6) / (cast[0].height * 1.3334 + 2.6));
        screen.replaceChildren(place);
        node.classList.add("playing");
        stopper.hidden = false;
        button.hidden = true;
        one.player = window.AsciinemaPlayer.create({ data: cast }, place, { fit: "width", controls: true, preload: true, logger: { log() {}, debug() {}, info() {}, warn() {}, error() {} } });
        one.timer = setInterval(() => follow(one), 200);
      }
      if (at === undefined) { await one.player.play(); return; }
      await one.player.seek(at);
      if (at === 0) await one.player.play();
      follow(one);
    } catch (problem) {
      if (turn !== one.wanted) return;
      one.stop();
      screen.prepend(el("p", { class: "problem" }, `Cannot play the recording: ${problem?.message ?? problem}`));
    } finally {
      button.disabled = false;
    }
  };
  one.stop = () => {
    one.wanted += 1;
    clearInterval(one.timer);
    one.player?.dispose();
    one.player = null;
    node.classList.remove("playing");
    stopper.hidden = true;
    button.hidden = false;
    $(".row.now")?.classList.remove("now");
    showStill();
  };
  showStill();
  return one;
}

/** Mark the row of the transcript that corresponds to the position of the player. */
async function follow(one) {
  const at = await one.player?.getCurrentTime();
  if (at === undefined || at === null || one.recording.begin === null) return;
  const t = one.recording.begin + at + 0.01;
  let now = null;
  for (const node of (one.home ?? document).querySelectorAll(".transcript .row[data-t]")) {
    if (Number(node.dataset.t) > t) break;
    now = node;
  }
  const before = $(".row.now");
  if (before === now) return;
  before?.classList.remove("now");
  now?.classList.add("now");
}

// ---- light and dark ----

const THEMES = ["", "light", "dark"];
function theme(next) {
  let name = next;
  try { name = next ?? localStorage.getItem("muster-theme") ?? ""; localStorage.setItem("muster-theme", name); } catch { name ??= ""; }
  if (!THEMES.includes(name)) name = "";
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  $("#theme").textContent = { "": "◐", light: "☀", dark: "☾" }[name];
  $("#theme").title = `${{ "": "System setting", light: "Light", dark: "Dark" }[name]} (t)`;
}
const nextTheme = () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? "";
  // The first press always changes the appearance.
  theme({ "": dark ? "light" : "dark", light: dark ? "dark" : "", dark: dark ? "" : "light" }[now]);
};

// ---- changing the state ----

function change(values, push = false) {
  const drawn = state.view + state.order;
  Object.assign(state, values);
  settle(values);
  history[push ? "pushState" : "replaceState"](null, "", hash());
  if (drawn !== state.view + state.order) drawList();
  show();
}

// ---- opening an item of the list ----

/** All links of the list: a node, and the item that it opens. */
let rows = [];
let opener = null;
let opened = "";
let film = null;

function open(id) {
  if (id === opened) return;
  const before = opened;
  opened = id;
  film?.close();
  film = null;
  const detail = $("#detail");
  detail.hidden = !id;
  document.body.classList.toggle("open", Boolean(id));
  if (!id) {
    detail.replaceChildren();
    const back = opener?.isConnected ? opener : rows.find(({ one }) => one.id === before)?.node;
    back?.focus({ preventScroll: true });
    back?.scrollIntoView({ block: "nearest" });
    return;
  }
  const one = byId.get(id);
  detail.replaceChildren(detailHead(one), el("p", { class: "wait" }, "Loading…"));
  detail.scrollTop = 0;
  // The layout of the list changes when the detail opens, so scroll the chosen item into view and the header out of it.
  if (!before && scrollY < $(".top").offsetHeight) scrollTo(0, $(".top").offsetHeight);
  const own = rows.filter((row) => row.one.id === id && !row.node.hidden).map(({ node }) => node);
  (own.includes(opener) ? opener : own[0])?.scrollIntoView({ block: "nearest" });
  fetchPart(parts, one.p).then((part) => {
    if (opened === id) drawDetail(one, part);
  }, (problem) => {
    if (opened === id) $(".wait", detail)?.replaceWith(el("p", { class: "problem" }, String(problem.message)));
  });
}

/** A link in the list that opens an item. */
function link(one, attributes, ...children) {
  const node = el("a", {
    ...attributes, href: `#${new URLSearchParams({ [NAME]: one.id })}`,
    onclick: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      opener = node;
      change({ chosen: one.id }, true);
      if (event.detail === 0) $("#detail h2")?.focus();
    },
  }, ...children);
  rows.push({ node, one });
  return node;
}

function closer() {
  return el("button", { type: "button", class: "quiet close", "aria-label": "Close (Esc)", title: "Close (Esc)", onclick: () => change({ chosen: "" }, true) }, "✕");
}

/** Update the controls and the chosen item from the state. */
function mark(filtered) {
  $("#clear").hidden = !filtered;
  if ($("#search").value !== state.q) $("#search").value = state.q;
  $("#order").value = state.order;
  for (const node of document.querySelectorAll("[data-view]")) node.setAttribute("aria-pressed", state.view === node.dataset.view);
  for (const { node, one } of rows) {
    if (one.id === state.chosen) node.setAttribute("aria-current", "true");
    else node.removeAttribute("aria-current");
  }
  open(state.chosen);
}

// ---- keys ----

function move(step) {
  const seen = rows.filter(({ node }) => !node.hidden && node.offsetParent !== null).map(({ node }) => node);
  if (!seen.length) return;
  const at = seen.findIndex((node) => node === document.activeElement);
  const from = at >= 0 ? at : opener?.isConnected && seen.includes(opener) ? seen.indexOf(opener) : seen.findIndex((node) => node.hasAttribute("aria-current"));
  const next = seen[from < 0 ? (step > 0 ? 0 : seen.length - 1) : Math.min(seen.length - 1, Math.max(0, from + step))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  if (state.chosen) { opener = next; change({ chosen: rows.find(({ node }) => node === next).one.id }); }
}

/** Listen to the keyboard, the controls and the URL; `own` are the keys of this page. */
function listen(own) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || $("#keys").open) return;
    const target = event.target;
    if (target.closest?.(".player") && event.key !== "Escape") return;
    if (target === $("#search")) {
      if (event.key === "Escape") { if (state.q) change({ q: "" }); else target.blur(); event.preventDefault(); }
      if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); target.blur(); move(1); }
      return;
    }
    if (target.closest?.("select, input, textarea")) return;
    const inDetail = target.closest?.("#detail");
    const keys = {
      "/": () => { $("#search").focus(); $("#search").select(); },
      j: () => move(1), k: () => move(-1),
      ArrowDown: inDetail ? null : () => move(1), ArrowUp: inDetail ? null : () => move(-1),
      Escape: () => { if (state.chosen) change({ chosen: "" }, true); else if (state.q) change({ q: "" }); },
      "?": () => $("#keys").showModal(),
      t: nextTheme,
      p: () => { const one = film?.cards.find(({ recording }) => recording.part); one?.play(); },
      ...own,
    };
    const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (act) { event.preventDefault(); act(); }
  });

  $("#search").addEventListener("input", (event) => change({ q: event.target.value }));
  $("#order").addEventListener("change", (event) => change({ order: event.target.value }));
  $("#clear").addEventListener("click", all);
  $("#theme").addEventListener("click", nextTheme);
  $("#help").addEventListener("click", () => $("#keys").showModal());
  for (const node of document.querySelectorAll("[data-view]")) node.addEventListener("click", () => change({ view: node.dataset.view }));
  const again = () => { const drawn = state.view + state.order; readHash(); if (drawn !== state.view + state.order) drawList(); show(); };
  window.addEventListener("popstate", again);
  window.addEventListener("hashchange", again);
}
