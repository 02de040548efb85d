// The page of a test run. What programs under test wrote comes as data and is put in with textContent; nothing here makes HTML.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const index = JSON.parse($("#index").textContent);
const { blocks, sections, tests } = index;

/** What each outcome is called, in the order in which it matters. */
const OUTCOMES = {
  failed: "failed", error: "error", broken: "broken", running: "did not end", xpassed: "passed unexpectedly",
  passed: "passed", skipped: "skipped", xfailed: "failed as expected",
};
const BAD = ["failed", "error", "broken", "running", "xpassed"];
const SIGNS = { failed: "✕", error: "!", broken: "?", running: "…", xpassed: "✕", passed: "✓", skipped: "–", xfailed: "✓" };
const rank = Object.fromEntries(Object.keys(OUTCOMES).map((name, at) => [name, at]));

tests.forEach((test, at) => {
  test.at = at;
  test.b ??= [];
  test.sections = new Set(test.b.map((block) => blocks[block].s));
  test.words = [test.n, test.f, test.c ?? "", ...test.b.map((block) => blocks[block].x)].join("\n").toLowerCase();
});
blocks.forEach((block) => { block.tests = []; block.words = block.x.toLowerCase(); });
tests.forEach((test) => test.b.forEach((block) => blocks[block].tests.push(test)));
const byId = new Map(tests.map((test) => [test.id, test]));
const untested = blocks.filter((block) => !block.k && !block.tests.length).length;

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

/** Load a script beside the page once; fetch does not work on file://. */
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
/** What the parts call. */
window.muster = {
  part: (key, value) => parts.set(key, value),
  recording: (key, value) => recordings.set(key, value),
};

async function fetchPart(store, key) {
  await load(`parts/${key}.js`);
  const found = store.get(key);
  if (!found) throw new Error(`parts/${key}.js is not what it should be`);
  return found;
}

// ---- what is shown, as the address says it ----

const state = { q: "", outcomes: new Set(), section: "", order: "", view: "", test: "" };

function readHash() {
  let said;
  try { said = new URLSearchParams(location.hash.slice(1)); } catch { said = new URLSearchParams(); }
  state.q = said.get("q") ?? "";
  state.outcomes = new Set((said.get("outcome") ?? "").split(",").filter((name) => name in OUTCOMES || name === "untested"));
  const section = said.get("section") ?? "";
  state.section = section === "none" || (/^\d+$/.test(section) && sections[section]) ? section : "";
  state.order = ["failed", "slow"].includes(said.get("order")) ? said.get("order") : "";
  const view = blocks.length ? "tutorial" : "tests";
  state.view = ["tutorial", "tests"].includes(said.get("view")) ? said.get("view") : view;
  state.test = byId.has(said.get("test")) ? said.get("test") : "";
}

function hash() {
  const said = new URLSearchParams();
  if (state.view !== (blocks.length ? "tutorial" : "tests")) said.set("view", state.view);
  if (state.q) said.set("q", state.q);
  if (state.outcomes.size) said.set("outcome", [...state.outcomes].join(","));
  if (state.section) said.set("section", state.section);
  if (state.order) said.set("order", state.order);
  if (state.test) said.set("test", state.test);
  return `#${said}`;
}

function change(values, push = false) {
  const drawn = state.view + state.order;
  Object.assign(state, values);
  // The tutorial has one order; another is one of tests.
  if (values.order) state.view = "tests";
  else if (values.view === "tutorial") state.order = "";
  history[push ? "pushState" : "replaceState"](null, "", hash());
  if (drawn !== state.view + state.order) drawList();
  show();
}

// ---- the top ----

function drawTop() {
  const counts = Object.fromEntries(Object.keys(OUTCOMES).map((name) => [name, 0]));
  tests.forEach((test) => { counts[test.o] += 1; });
  const real = blocks.filter((block) => !block.k);
  const { run } = index;
  const total = run.started !== null && run.ended !== null && run.ended >= run.started
    ? run.ended - run.started : tests.reduce((sum, test) => sum + (test.d ?? 0), 0);
  const bad = BAD.reduce((sum, name) => sum + counts[name], 0);
  const facts = [
    el("strong", { class: bad ? "bad" : "good" }, tests.length === 0 ? "No tests" : bad ? `${bad} of ${tests.length} need a look` : `All ${tests.length} fine`),
    real.length ? el("span", {}, `${real.length - untested} of ${real.length} blocks covered`) : null,
    tests.length ? el("span", {}, span(total)) : null,
    run.started !== null ? el("time", { title: run.args.length ? `pytest ${run.args.join(" ")}` : null }, when(run.started)) : null,
    run.started !== null && run.ended === null ? el("span", { class: "bad" }, "the run did not end") : null,
  ];
  $("#facts").append(...facts.filter(Boolean));
  for (const [name, label] of Object.entries(OUTCOMES)) {
    if (!counts[name]) continue;
    $("#bar").append(sized(el("i", { class: `o-${name}` }), counts[name]));
    $("#outcomes").append(chip(name, label, counts[name]));
  }
  if (untested) $("#outcomes").append(chip("untested", untested === 1 ? "block without a test" : "blocks without a test", untested));
  $("#section").append(el("option", { value: "" }, "All sections"));
  sections.forEach((title, at) => $("#section").append(el("option", { value: at }, title)));
  if (tests.some((test) => !test.b.length)) $("#section").append(el("option", { value: "none" }, "Tests without a block"));
  $("#section").hidden = sections.length < 2;
  $(".views").hidden = !blocks.length;
  document.title = `${bad ? `${bad} ✕ ` : ""}Test report`;
}

function sized(node, share) {
  node.style.flexGrow = share;
  return node;
}

function chip(name, label, number) {
  return el("button", {
    type: "button", class: `chip o-${name}`, "data-outcome": name, "aria-pressed": "false",
    onclick: () => {
      const next = new Set(state.outcomes);
      if (!next.delete(name)) next.add(name);
      change({ outcomes: next, ...(next.has("untested") && blocks.length ? { view: "tutorial" } : {}) });
    },
  }, el("i", { class: "dot", "aria-hidden": "true" }), el("b", {}, number.toLocaleString()), ` ${label}`);
}

// ---- the list ----

let rows = [];

function drawList() {
  rows = [];
  const list = $("#list");
  const drawn = state.view === "tutorial" ? drawTutorial() : drawTests();
  list.className = state.view;
  list.replaceChildren(...drawn, el("p", { class: "empty", id: "nothing", hidden: true }, tests.length || blocks.length ? "Nothing fits." : "There are no tests in this run."));
}

function all() {
  change({ q: "", outcomes: new Set(), section: "" });
}

/** A name that may be broken behind its underscores. */
function soft(name) {
  return name.split(/(?<=[_/\[\]-])/).flatMap((piece, at) => (at ? [el("wbr"), piece] : [piece]));
}

function ordered(some) {
  const all = [...some];
  if (state.order === "failed") all.sort((a, b) => rank[a.o] - rank[b.o] || a.at - b.at);
  if (state.order === "slow") all.sort((a, b) => (b.d ?? 0) - (a.d ?? 0) || a.at - b.at);
  return all;
}

function testRow(test, about = "") {
  const node = el("a", {
    class: `test o-${test.o}`, href: `#${new URLSearchParams({ test: test.id })}`,
    onclick: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      opener = node;
      change({ test: test.id }, true);
      if (event.detail === 0) $("#detail h2")?.focus();
    },
  },
  el("i", { class: "sign", role: "img", "aria-label": OUTCOMES[test.o], title: OUTCOMES[test.o] }, SIGNS[test.o]),
  el("span", { class: "name" }, soft(test.n), about ? el("small", {}, about) : null),
  test.e ? el("small", { class: "tag", title: "This test did not run the last time; what is shown is from before" }, "earlier") : null,
  test.r ? el("small", { class: "film", title: count(test.r, "recording") }, "▶", test.r > 1 ? String(test.r) : "") : null,
  el("span", { class: "time" }, span(test.d)));
  rows.push({ node, test });
  return node;
}

function drawTutorial() {
  const drawn = sections.map((title, at) => {
    const own = blocks.filter((block) => block.s === at);
    const real = own.filter((block) => !block.k);
    const covered = real.filter((block) => block.tests.length).length;
    return el("section", { "data-section": at },
      el("h2", {}, el("span", {}, title), real.length ? el("small", { class: covered < real.length ? "part" : "" },
        covered === real.length ? `${count(real.length, "block")}, all covered` : `${covered} of ${count(real.length, "block")} covered`) : null),
      own.map((block) => {
        const node = el("article", { class: `block ${block.k ?? ""} ${block.tests.length ? "" : "untested"}` },
          blockText(block.x),
          block.k === "prose" && !block.tests.length ? null : el("div", { class: "tests" },
            block.tests.length ? ordered(block.tests).map((test) => testRow(test)) : el("p", { class: "none" }, block.k === "fill" ? "to be filled" : "no test yet")));
        block.node = node;
        return node;
      }));
  });
  const rest = tests.filter((test) => !test.b.length);
  if (rest.length) {
    drawn.push(el("section", { "data-section": "none" }, el("h2", {}, el("span", {}, "Tests without a block")),
      el("div", { class: "loose" }, ordered(rest).map((test) => testRow(test, test.f)))));
  }
  return drawn;
}

function drawTests() {
  const say = (test) => test.b.map((block) => firstWords(blocks[block].x)).join(" · ");
  if (state.order) return [el("section", {}, el("div", { class: "loose" }, ordered(tests).map((test) => testRow(test, say(test)))))];
  const files = new Map();
  tests.forEach((test) => files.set(test.f, [...(files.get(test.f) ?? []), test]));
  return [...files].map(([file, own]) => el("section", {}, el("h2", { class: "file" }, el("span", {}, file || "No file"), el("small", {}, count(own.length, "test"))),
    el("div", { class: "loose" }, own.map((test) => testRow(test, say(test))))));
}

function firstWords(text) {
  const line = text.split("\n", 1)[0].replace(/^#+\s*/, "");
  return line.length > 110 ? `${line.slice(0, 109)}…` : line;
}

/** A block as one reads it: its comments as text, its commands as code. */
function blockText(text) {
  const pieces = [];
  for (const line of text.split("\n")) {
    const said = /^\s*#(?!!)/.test(line) && !pieces.at(-1)?.open;
    const last = pieces.at(-1);
    if (last && last.said === said) last.lines.push(line);
    else pieces.push({ said, lines: [line] });
    const here = pieces.at(-1);
    if (!said) {
      // A comment sign in a here-document is no comment of the block.
      const begins = /<<-?\s*(['"]?)([A-Za-z_]\w*)\1/.exec(line);
      if (here.open && line.trim() === here.open) here.open = "";
      else if (begins && !here.open) here.open = begins[2];
    }
  }
  return el("div", { class: "text" }, pieces.map((piece) => piece.said
    ? el("p", {}, piece.lines.map((line) => line.replace(/^\s*#+ ?/, "")).join(" "))
    : el("pre", {}, piece.lines.join("\n"))));
}

// ---- search and filters ----

function fits(test, wanted) {
  if (state.outcomes.size && !state.outcomes.has(test.o)) return false;
  if (state.section === "none" ? test.b.length : state.section && !test.sections.has(Number(state.section))) return false;
  return wanted.every((word) => test.words.includes(word));
}

function show() {
  const wanted = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = new Set(tests.filter((test) => fits(test, wanted)));
  for (const { node, test } of rows) node.hidden = !shown.has(test);
  const filtered = wanted.length || state.outcomes.size || state.section;
  let empty = 0;
  if (state.view === "tutorial") {
    for (const block of blocks) {
      const own = block.tests.some((test) => shown.has(test));
      const bare = !block.tests.length && (!state.section || state.section === String(block.s))
        && (!state.outcomes.size || (state.outcomes.has("untested") && !block.k)) && wanted.every((word) => block.words.includes(word));
      const here = !state.section || state.section === String(block.s);
      block.node.hidden = filtered ? !((own && here) || bare) : false;
      if (bare && !block.k) empty += 1;
    }
  }
  for (const section of $("#list").querySelectorAll("section")) section.hidden = !section.querySelector("article:not([hidden]), .loose > .test:not([hidden])");
  $("#nothing").hidden = Boolean($("#list section:not([hidden])"));
  const without = filtered && empty && state.view === "tutorial" ? `, ${count(empty, "block")} without a test` : "";
  $("#count").textContent = filtered ? `${shown.size.toLocaleString()} of ${count(tests.length, "test")}${without}` : count(tests.length, "test");
  $("#clear").hidden = !filtered;
  if ($("#search").value !== state.q) $("#search").value = state.q;
  $("#section").value = state.section;
  $("#order").value = state.order;
  for (const node of document.querySelectorAll("[data-outcome]")) node.setAttribute("aria-pressed", state.outcomes.has(node.dataset.outcome));
  for (const node of document.querySelectorAll("[data-view]")) node.setAttribute("aria-pressed", state.view === node.dataset.view);
  for (const { node, test } of rows) {
    if (test.id === state.test) node.setAttribute("aria-current", "true");
    else node.removeAttribute("aria-current");
  }
  open(state.test);
}

// ---- one test ----

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
    const back = opener?.isConnected ? opener : rows.find(({ test }) => test.id === before)?.node;
    back?.focus({ preventScroll: true });
    back?.scrollIntoView({ block: "nearest" });
    return;
  }
  const test = byId.get(id);
  detail.replaceChildren(detailHead(test), el("p", { class: "wait" }, "Reading…"));
  detail.scrollTop = 0;
  // The list has another shape now: what was chosen stays in sight, and the top makes room.
  if (!before && scrollY < $(".top").offsetHeight) scrollTo(0, $(".top").offsetHeight);
  const own = rows.filter((row) => row.test.id === id && !row.node.hidden).map(({ node }) => node);
  (own.includes(opener) ? opener : own[0])?.scrollIntoView({ block: "nearest" });
  fetchPart(parts, test.p).then((part) => {
    if (opened === id) drawDetail(test, part);
  }, (problem) => {
    if (opened === id) $(".wait", detail)?.replaceWith(el("p", { class: "problem" }, String(problem.message)));
  });
}

function detailHead(test) {
  return el("header", { class: `o-${test.o}` },
    el("button", { type: "button", class: "quiet close", "aria-label": "Close (Esc)", title: "Close (Esc)", onclick: () => change({ test: "" }, true) }, "✕"),
    el("h2", { tabindex: "-1" }, soft(test.n)),
    el("p", { class: "facts" },
      el("strong", { class: `o-${test.o}` }, OUTCOMES[test.o]),
      test.d !== undefined ? el("span", {}, span(test.d)) : null,
      test.f ? el("code", {}, test.l ? `${test.f}:${test.l}` : test.f) : null,
      el("time", {}, "")));
}

function drawDetail(test, part) {
  const detail = $("#detail");
  if (part.started !== null) $("time", detail).textContent = when(part.started);
  if (test.e) $(".facts", detail).append(el("span", {}, "from an earlier run"));
  const story = el("div", { class: "story" });
  const cards = part.recordings.map((recording) => card(recording));
  const problem = part.message.length ? el("div", { class: `problem o-${test.o}` }, runs(el("pre", {}), part.message)) : null;
  const notes = [
    part.leaks.length ? el("div", { class: "leaks" }, el("h3", {}, "Left behind"), el("ul", {}, part.leaks.map((leak) => el("li", {}, leak)))) : null,
    part.kept ? el("p", { class: "kept" }, "Its folder was kept: ", el("code", {}, part.kept)) : null,
    part.broken ? el("p", { class: "kept" }, `${count(part.broken, "line")} of the transcript could not be read.`) : null,
  ];
  const cited = part.blocks.length ? el("div", { class: "cited" }, el("h3", {}, part.blocks.length === 1 ? "Block" : "Blocks"),
    part.blocks.map(([at, text]) => el("div", { class: `block ${blocks[at].k ?? ""}` }, blockText(text),
      el("small", {}, blocks[at].k === "stale" ? "not in the tutorial as it was" : sections[blocks[at].s] + (blocks[at].l ? `, line ${blocks[at].l}` : ""))))) : null;
  story.append(...[problem, cited, ...notes].filter(Boolean));
  const films = cards.length ? el("div", { class: "films" }, el("h3", {}, cards.length === 1 ? "Recording" : "Recordings"), el("div", { class: "cards" }, cards.map((one) => one.node))) : null;
  const lines = el("div", { class: "transcript" }, el("h3", {}, "Transcript"), transcript(part, cards));
  $(".wait", detail)?.remove();
  detail.append(el("div", { class: films ? "body with-films" : "body" }, story, ...(films ? [films] : []), lines));
  film = { cards, close: () => cards.forEach((one) => one.stop()) };
}

/** Text with colours: every class and colour is made of numbers here. */
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

const PROMPTS = { comment: "#", command: "$", err: "!", exit: "?", terminal: "▣", keys: "⌨", recording: "▶", note: "·", other: "·", block: "¶" };

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
    el("div", { class: "what" }, `About ${size(part.cut.chars)} left out here. All of it is in `, el("code", {}, part.path)));
}

/** The recording that was going on at a row's moment: of several, the one that began last. */
function coveringCard(cards, row) {
  let found = null;
  for (const one of cards) {
    const { begin, length, part } = one.recording;
    if (!part || begin === null || length === undefined || row.t < begin || row.t > begin + length + 0.05) continue;
    if (!found || begin >= found.recording.begin) found = one;
  }
  return found;
}

function rowBody(row, cards, current) {
  const who = row.n !== undefined && row.n !== current && ["out", "err", "exit"].includes(row.k) ? el("small", { class: "who", title: "the number of its command" }, `[${row.n}]`) : null;
  if (row.k === "out" || row.k === "err") return el("div", { class: "what" }, who, runs(el("pre", {}), row.r));
  if (row.k === "exit") {
    const late = row.w !== undefined;
    const bad = late || row.c !== 0;
    return el("div", { class: "what" }, who, el("span", { class: bad ? "badge" : "fine" }, late ? `ended after ${span(row.w)}` : row.c === null ? "no exit code" : `exit ${row.c}`),
      row.d !== null ? el("small", {}, span(row.d)) : null);
  }
  if (row.k === "block") return el("div", { class: "what" }, firstWords(row.x));
  if (row.k === "terminal" || row.k === "recording") {
    const one = cards.find((card_) => card_.recording.name === row.rec);
    return el("div", { class: "what" }, el("pre", {}, firstWords(row.x) || row.rec), one
      ? el("button", { type: "button", class: "play small", disabled: !one.recording.part, onclick: () => one.play(0) }, one.recording.part ? "Play the recording" : "No recording") : null);
  }
  return el("div", { class: "what" }, el("pre", {}, row.x ?? ""), row.bg ? el("small", { class: "tag" }, `in the background, [${row.n}]`) : null);
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
  const showStill = () => screen.replaceChildren(...(recording.screen?.length ? [still] : recording.part ? [el("p", { class: "none" }, "Its last screen was empty.")] : []),
    ...(recording.part && !index.player ? [el("p", { class: "none" }, "To play it here: ", el("code", {}, index.install), ", then make the report again.")] : []));

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
      screen.prepend(el("p", { class: "problem" }, `It cannot be played: ${problem?.message ?? problem}`));
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

/** Mark the row of the transcript at which the player is. */
async function follow(one) {
  const at = await one.player?.getCurrentTime();
  if (at === undefined || at === null || one.recording.begin === null) return;
  const t = one.recording.begin + at + 0.01;
  let now = null;
  for (const node of document.querySelectorAll(".transcript .row[data-t]")) {
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
  $("#theme").title = `${{ "": "As the system has it", light: "Light", dark: "Dark" }[name]} (t)`;
}
const nextTheme = () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? "";
  // The first press always changes what is seen.
  theme({ "": dark ? "light" : "dark", light: dark ? "dark" : "", dark: dark ? "" : "light" }[now]);
};

// ---- keys ----

function move(step) {
  const seen = rows.filter(({ node }) => !node.hidden && node.offsetParent !== null).map(({ node }) => node);
  if (!seen.length) return;
  const at = seen.findIndex((node) => node === document.activeElement);
  const from = at >= 0 ? at : opener?.isConnected && seen.includes(opener) ? seen.indexOf(opener) : seen.findIndex((node) => node.hasAttribute("aria-current"));
  const next = seen[from < 0 ? (step > 0 ? 0 : seen.length - 1) : Math.min(seen.length - 1, Math.max(0, from + step))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  if (state.test) { opener = next; change({ test: rows.find(({ node }) => node === next).test.id }); }
}

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
    Escape: () => { if (state.test) change({ test: "" }, true); else if (state.q) change({ q: "" }); },
    "?": () => $("#keys").showModal(),
    f: () => { const some = BAD.some((name) => state.outcomes.has(name)); change({ outcomes: new Set(some ? [] : BAD.filter((name) => tests.some((test) => test.o === name))) }); },
    v: () => { if (blocks.length) change({ view: state.view === "tests" ? "tutorial" : "tests" }); },
    t: nextTheme,
    p: () => { const one = film?.cards.find(({ recording }) => recording.part); one?.play(); },
  };
  const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (act) { event.preventDefault(); act(); }
});

$("#search").addEventListener("input", (event) => change({ q: event.target.value }));
$("#section").addEventListener("change", (event) => change({ section: event.target.value }));
$("#order").addEventListener("change", (event) => change({ order: event.target.value }));
$("#clear").addEventListener("click", all);
$("#theme").addEventListener("click", nextTheme);
$("#help").addEventListener("click", () => $("#keys").showModal());
for (const node of document.querySelectorAll("[data-view]")) node.addEventListener("click", () => change({ view: node.dataset.view }));
const again = () => { const drawn = state.view + state.order; readHash(); if (drawn !== state.view + state.order) drawList(); show(); };
window.addEventListener("popstate", again);
window.addEventListener("hashchange", again);

theme();
drawTop();
readHash();
drawList();
show();
