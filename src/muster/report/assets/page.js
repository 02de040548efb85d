// The page of a test run. tools.js is loaded before it, in the same file.

const { blocks, sections, tests } = index;
const VIEW = blocks.length ? "tutorial" : "tests";
const NAME = "test";

/** Labels of outcomes, most important first. */
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

// ---- the state of the page, kept in the URL ----

const state = { q: "", outcomes: new Set(), section: "", order: "", view: "", chosen: "" };

function readHash() {
  let params;
  try { params = new URLSearchParams(location.hash.slice(1)); } catch { params = new URLSearchParams(); }
  state.q = params.get("q") ?? "";
  state.outcomes = new Set((params.get("outcome") ?? "").split(",").filter((name) => name in OUTCOMES || name === "untested"));
  const section = params.get("section") ?? "";
  state.section = section === "none" || (/^\d+$/.test(section) && sections[section]) ? section : "";
  state.order = ["failed", "slow"].includes(params.get("order")) ? params.get("order") : "";
  state.view = ["tutorial", "tests"].includes(params.get("view")) ? params.get("view") : VIEW;
  state.chosen = byId.has(params.get(NAME)) ? params.get(NAME) : "";
}

function hash() {
  const params = new URLSearchParams();
  if (state.view !== VIEW) params.set("view", state.view);
  if (state.q) params.set("q", state.q);
  if (state.outcomes.size) params.set("outcome", [...state.outcomes].join(","));
  if (state.section) params.set("section", state.section);
  if (state.order) params.set("order", state.order);
  if (state.chosen) params.set(NAME, state.chosen);
  return `#${params}`;
}

/** The tutorial has a fixed order, so sorting switches to the list of tests. */
function settle(values) {
  if (values.order) state.view = "tests";
  else if (values.view === "tutorial") state.order = "";
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
    el("strong", { class: bad ? "bad" : "good" }, tests.length === 0 ? "No tests" : bad ? `${bad} of ${tests.length} need a look` : `All ${tests.length} passed`),
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

function drawList() {
  rows = [];
  const list = $("#list");
  const drawn = state.view === "tutorial" ? drawTutorial() : drawTests();
  list.className = state.view;
  list.replaceChildren(...drawn, el("p", { class: "empty", id: "nothing", hidden: true }, tests.length || blocks.length ? "No test matches." : "There are no tests in this run."));
}

function all() {
  change({ q: "", outcomes: new Set(), section: "" });
}

function ordered(some) {
  const all = [...some];
  if (state.order === "failed") all.sort((a, b) => rank[a.o] - rank[b.o] || a.at - b.at);
  if (state.order === "slow") all.sort((a, b) => (b.d ?? 0) - (a.d ?? 0) || a.at - b.at);
  return all;
}

function testRow(test, about = "") {
  return link(test, { class: `test o-${test.o}` },
    el("i", { class: "sign", role: "img", "aria-label": OUTCOMES[test.o], title: OUTCOMES[test.o] }, SIGNS[test.o]),
    el("span", { class: "name" }, soft(test.n), about ? el("small", {}, about) : null),
    test.e ? el("small", { class: "tag", title: "This test was not part of the last run; this is an earlier result" }, "earlier") : null,
    test.r ? el("small", { class: "film", title: count(test.r, "recording") }, "▶", test.r > 1 ? String(test.r) : "") : null,
    el("span", { class: "time" }, span(test.d)));
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

// ---- search and filters ----

function fits(test, wanted) {
  if (state.outcomes.size && !state.outcomes.has(test.o)) return false;
  if (state.section === "none" ? test.b.length : state.section && !test.sections.has(Number(state.section))) return false;
  return wanted.every((word) => test.words.includes(word));
}

function show() {
  const wanted = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = new Set(tests.filter((test) => fits(test, wanted)));
  for (const { node, one } of rows) node.hidden = !shown.has(one);
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
  $("#section").value = state.section;
  for (const node of document.querySelectorAll("[data-outcome]")) node.setAttribute("aria-pressed", state.outcomes.has(node.dataset.outcome));
  mark(filtered);
}

// ---- one test ----

function detailHead(test) {
  return el("header", { class: `o-${test.o}` },
    closer(),
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
    part.kept ? el("p", { class: "kept" }, "Its sandbox folder was kept: ", el("code", {}, part.kept)) : null,
    part.broken ? el("p", { class: "kept" }, `${count(part.broken, "line")} of the transcript could not be read.`) : null,
  ];
  const cited = part.blocks.length ? el("div", { class: "cited" }, el("h3", {}, part.blocks.length === 1 ? "Block" : "Blocks"),
    part.blocks.map(([at, text]) => el("div", { class: `block ${blocks[at].k ?? ""}` }, blockText(text),
      el("small", {}, blocks[at].k === "stale" ? "not in the tutorial at the time of the run" : sections[blocks[at].s] + (blocks[at].l ? `, line ${blocks[at].l}` : ""))))) : null;
  story.append(...[problem, cited, ...notes].filter(Boolean));
  const films = cards.length ? el("div", { class: "films" }, el("h3", {}, cards.length === 1 ? "Recording" : "Recordings"), el("div", { class: "cards" }, cards.map((one) => one.node))) : null;
  const lines = el("div", { class: "transcript" }, el("h3", {}, "Transcript"), transcript(part, cards));
  $(".wait", detail)?.remove();
  detail.append(el("div", { class: films ? "body with-films" : "body" }, story, ...(films ? [films] : []), lines));
  film = { cards, close: () => cards.forEach((one) => one.stop()) };
}

const PROMPTS = { comment: "#", command: "$", err: "!", exit: "?", terminal: "▣", keys: "⌨", recording: "▶", note: "·", other: "·", block: "¶" };

function rowBody(row, cards, current) {
  const who = row.n !== undefined && row.n !== current && ["out", "err", "exit"].includes(row.k) ? el("small", { class: "who", title: "the number of its command" }, `[${row.n}]`) : null;
  if (row.k === "out" || row.k === "err") return el("div", { class: "what" }, who, runs(el("pre", {}), row.r));
  if (row.k === "exit") {
    const late = row.w !== undefined;
    const bad = late || row.c !== 0;
    return el("div", { class: "what" }, who, el("span", { class: bad ? "badge" : "fine" }, late ? `timed out after ${span(row.w)}` : row.c === null ? "no exit code" : `exit ${row.c}`),
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

listen({
  f: () => { const some = BAD.some((name) => state.outcomes.has(name)); change({ outcomes: new Set(some ? [] : BAD.filter((name) => tests.some((test) => test.o === name))) }); },
  v: () => { if (blocks.length) change({ view: state.view === "tests" ? "tutorial" : "tests" }); },
});
$("#section").addEventListener("change", (event) => change({ section: event.target.value }));
theme();
drawTop();
readHash();
drawList();
show();
