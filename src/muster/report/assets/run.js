// The page of a flow run. tools.js is loaded before it, in the same file.

const { run, tasks } = index;
const NAME = "task";
/** Seconds between reloads of the page while the run is in progress. */
const RELOAD_SECONDS = 5;

/** Labels of outcomes: what the agent claimed, or what was observed if it claimed nothing. */
const CLAIMED = {
  ok: "ok", blocked: "blocked", failed: "failed", invalid: "no valid result", timeout: "out of time", stalled: "stalled",
  "over-budget": "over budget", cancelled: "cancelled", lost: "lost", running: "running", todo: "not started",
};
const VERIFIED = { fixed: "fixed", improved: "improved", unchanged: "already good", refused: "refused", none: "not verified" };
/** The test outcome whose colour is used for each state. */
const TONES = {
  fixed: "passed", improved: "passed", unchanged: "passed", refused: "failed", ok: run.kind === "map" ? "passed" : "skipped", blocked: "xfailed", failed: "failed",
  invalid: "failed", timeout: "failed", stalled: "failed", lost: "failed", running: "running",
};
const SIGNS = { fixed: "✓", improved: "✓", unchanged: "=", refused: "✕", ok: run.kind === "map" ? "✓" : "○", blocked: "!", failed: "✕", invalid: "?", timeout: "✕", stalled: "✕", lost: "✕", running: "…" };
const NEEDS_LOOK = ["refused", "failed", "invalid", "lost", "stalled", "timeout", "blocked", "over-budget", "cancelled", "running", "todo", "ok"];
const FUNNEL = {
  tests: ["tests", "test functions in the repository"], failing: ["failing", "tests that failed, hung or were flaky before the run"],
  groups: ["groups", "groups of tests with similar failures"], skipped: ["skipped", "tests that got no agent; the reasons are below"], tasks: ["tasks", "input items"],
  launched: ["launched", "tasks that were given to an agent"], valid: ["valid", "tasks whose agent submitted a valid result"], ok: ["ok", "tasks whose agent claims success"],
  verified: ["verified", "tasks whose claim was confirmed in a clean checkout"], integrated: ["integrated", "tasks whose change is in the branch"], left_out: ["left out", "verified, but not in the branch"],
  refused: ["refused", "tasks whose claim was not confirmed"], failed: ["failed", "tasks that ended without success"], blocked: ["blocked", "tasks that wait for someone else to act"],
};

tasks.forEach((task, at) => {
  task.at = at;
  task.tag = task.v || task.o;
  task.v ??= "none";
  task.look = NEEDS_LOOK.slice(0, 9).includes(task.tag) || task.i === "left";
  task.words = [task.id, task.n, task.f, task.m, task.w, task.b, task.r, task.s, task.tag].filter(Boolean).join("\n").toLowerCase();
});
const byId = new Map(tasks.map((task) => [task.id, task]));

const dollars = (number) => (number === null || number === undefined ? "unknown" : `$${number.toFixed(number < 10 ? 2 : 1)}`);
const hex = (commit) => el("code", { class: "hex", title: commit }, commit.slice(0, 9));
const tone = (word) => `o-${TONES[word] ?? "skipped"}`;
const badge = (word, labels) => el("span", { class: `mark ${tone(word)}` }, labels[word] ?? word);

// ---- the state of the page, kept in the URL ----

const state = { q: "", claimed: new Set(), verified: new Set(), look: false, order: "", view: "", chosen: "" };
const FILTERS = { claimed: CLAIMED, verified: VERIFIED };

function readHash() {
  let params;
  try { params = new URLSearchParams(location.hash.slice(1)); } catch { params = new URLSearchParams(); }
  state.q = params.get("q") ?? "";
  for (const [key, labels] of Object.entries(FILTERS)) state[key] = new Set((params.get(key) ?? "").split(",").filter((name) => Object.hasOwn(labels, name)));
  state.look = params.get("look") === "1";
  state.order = ["look", "slow", "cost"].includes(params.get("order")) ? params.get("order") : "";
  state.view = params.get("view") === "tasks" ? "tasks" : "overview";
  state.chosen = byId.has(params.get(NAME)) ? params.get(NAME) : "";
  settle({});
}

function hash() {
  const params = new URLSearchParams();
  if (state.view === "tasks") params.set("view", "tasks");
  if (state.q) params.set("q", state.q);
  for (const key of Object.keys(FILTERS)) if (state[key].size) params.set(key, [...state[key]].join(","));
  if (state.look) params.set("look", "1");
  if (state.order) params.set("order", state.order);
  if (state.chosen) params.set(NAME, state.chosen);
  return `#${params}`;
}

const NOTHING = () => ({ q: "", claimed: new Set(), verified: new Set(), look: false });
const filtered = () => Boolean(state.q.trim() || state.claimed.size || state.verified.size || state.look);

/** Searching and sorting switch to the list, because the overview always shows everything. */
function settle(values) {
  if (values.view === "overview") Object.assign(state, NOTHING(), { order: "" });
  else if (filtered() || state.order) state.view = "tasks";
}

// ---- the top ----

function drawTop() {
  const counts = Object.fromEntries(index.funnel.map(([name, number]) => [name, number]));
  const done = tasks.filter((task) => !["running", "todo"].includes(task.o)).length;
  const [good, of] = run.kind === "improve" ? [counts.verified, counts.launched] : [counts.ok, counts.tasks];
  const headline = `${good} of ${of} ${run.kind === "improve" ? "verified" : "ok"}`;
  const end = run.ended ?? run.last;
  $("#name").textContent = run.name;
  $("#facts").append(...[
    run.live ? el("span", { class: "live", title: `This page reloads every ${RELOAD_SECONDS} seconds` }, `in progress: ${done} of ${count(tasks.length, "task")} done`) : null,
    el("strong", { class: good ? "good" : "" }, headline),
    run.created !== null && end !== null && end >= run.created ? el("span", {}, span(end - run.created)) : null,
    run.created !== null ? el("time", {}, when(run.created)) : null,
    run.live && run.last !== null ? el("span", {}, `last event ${when(run.last)}`) : null,
    run.type ? el("span", {}, run.type) : null,
    index.before === null ? null : el("span", {}, `compared with ${index.before}`),
    run.repo ? el("code", {}, run.repo) : null,
  ].filter(Boolean));
  document.title = `${run.live ? "… " : ""}${run.name}: ${headline}`;
  drawFunnel(counts);
  const looks = tasks.filter((task) => task.look).length;
  if (looks) $("#chips").append(el("button", { type: "button", class: "chip o-failed", "data-filter": "look", onclick: () => change({ look: !state.look }) }, el("b", {}, String(looks)), looks === 1 ? " needs a look" : " need a look"));
  chips("claimed", "Claimed", (task) => task.o);
  if (run.kind === "improve") chips("verified", "Verified", (task) => task.v);
}

function drawFunnel(counts) {
  const most = Math.max(counts.tests ?? 0, counts.tasks ?? 0, counts.launched, 1);
  for (const [name, number, before] of index.funnel) {
    if (!FUNNEL[name]) continue;
    const [label, title] = FUNNEL[name];
    const bar = el("i", {});
    bar.style.width = `${Math.min(100, (100 * number) / most)}%`;
    bar.style.visibility = number ? "" : "hidden";
    $("#funnel").append(el("div", { title, class: ["refused", "left_out", "failed", "blocked"].includes(name) && number ? `f-${name} bad` : `f-${name}` },
      el("dt", {}, label), el("dd", {}, el("b", {}, number.toLocaleString()), since(number, before, (difference) => difference.toLocaleString())), bar));
  }
  const [cost, old] = index.funnel.find(([name]) => name === "cost_usd").slice(1);
  $("#funnel").append(el("div", { class: "f-spent", title: counts.tokens === null ? null : `${count(Math.round(counts.tokens), "token")}` },
    el("dt", {}, "spent"), el("dd", {}, el("b", {}, counts.tokens === null && cost === null ? "–" : dollars(cost)), since(cost, old, (difference) => difference.toFixed(2))), el("i", {})));
}

/** The difference to the previous run, if there is one. */
function since(number, before, say) {
  if (index.before === null || before === null || before === undefined || number === null) return null;
  const difference = number - before;
  return el("small", { title: `${say(before)} in ${index.before}` }, difference === 0 ? "±0" : `${difference > 0 ? "+" : "−"}${say(Math.abs(difference))}`);
}

function chips(key, title, of) {
  const counts = new Map();
  tasks.forEach((task) => counts.set(of(task), (counts.get(of(task)) ?? 0) + 1));
  if (counts.size) $("#chips").append(el("span", { class: "of" }, title));
  for (const [name, label] of Object.entries(FILTERS[key])) {
    if (!counts.has(name)) continue;
    $("#chips").append(el("button", {
      type: "button", class: `chip ${key === "claimed" && name === "ok" ? "o-skipped" : tone(name)}`, "data-filter": key, "data-word": name,
      onclick: () => { const next = new Set(state[key]); if (!next.delete(name)) next.add(name); change({ [key]: next }); },
    }, el("i", { class: "dot", "aria-hidden": "true" }), el("b", {}, counts.get(name).toLocaleString()), ` ${label}`));
  }
}

// ---- the overview ----

function drawList() {
  rows = [];
  const list = $("#list");
  list.className = state.view;
  list.replaceChildren(...(state.view === "overview" ? drawOverview() : drawTasks()), el("p", { class: "empty", id: "nothing", hidden: true }, tasks.length ? "No task matches." : "There are no tasks yet."));
}

function panel(title, about, ...body) {
  return el("section", { class: "panel" }, el("h2", {}, el("span", {}, title), about ? el("small", {}, about) : null), ...body);
}

/** A link to a task by its id, or plain text if the run has no such task. */
function mention(id, ...more) {
  const task = byId.get(id);
  return task ? link(task, { class: "mention" }, ...(more.length ? more : [task.id])) : el("span", {}, ...(more.length ? more : [id]));
}

function drawOverview() {
  const refused = tasks.filter((task) => task.v === "refused");
  const stuck = tasks.filter((task) => task.look && task.v !== "refused" && task.i !== "left");
  const left = index.branch?.left ?? [];
  const first = [
    run.kind === "improve" ? drawBranch() : null,
    refused.length ? panel("Refused", "claims that were not confirmed", el("ul", { class: "list" }, refused.map((task) => reason(task.id, task.w)))) : null,
    left.length ? panel("Left out", "verified, but not in the branch", el("ul", { class: "list" }, left.map(([id, why]) => reason(id, why)))) : null,
    stuck.length ? panel("Unsuccessful", "", el("ul", { class: "list" }, stuck.slice(0, 100).map((task) => reason(task.id, `${CLAIMED[task.o]}${task.w ? `: ${task.w}` : ""}`)))) : null,
    index.escalations.length ? panel("Escalations", "what agents ask a person to look at", el("ul", { class: "list" }, index.escalations.map((one) => el("li", {}, el("p", {}, one.x), by(one.by))))) : null,
  ];
  const second = [
    drawTime(),
    index.groups.length ? drawGroups() : null,
    index.skipped.length ? panel("Skipped", "tests that got no agent", el("ul", { class: "list" }, index.skipped.map((one) => el("li", {}, folded(`${count(one.count, "test")}: ${one.why}`, one.tests, one.count))))) : null,
    index.notices.length ? panel("Notices", "", el("ul", { class: "list" }, index.notices.map(([t, kind, text]) => el("li", {}, el("p", {}, text || kind), el("small", {}, t === null ? kind : `${kind}, ${when(t)}`))))) : null,
  ];
  return [el("div", { class: "columns" }, ...[first, second].map((column) => el("div", {}, ...column.filter(Boolean))))];
}

function reason(id, why) {
  const task = byId.get(id);
  return el("li", {}, mention(id, el("b", {}, ...soft(task?.n ?? id))), el("p", {}, why));
}

function by(ids) {
  return el("small", {}, ids.flatMap((id, at) => [at ? ", " : "", mention(id)]));
}

function folded(title, tests, total) {
  return el("details", {}, el("summary", {}, title), el("ul", { class: "names" }, tests.map((test) => el("li", {}, ...soft(test))),
    total > tests.length ? el("li", { class: "none" }, `and ${count(total - tests.length, "more", "more")}`) : null));
}

function drawBranch() {
  const { branch } = index;
  if (!branch) return panel("Branch", "", el("p", { class: "none" }, run.live ? "Not created yet." : "No branch was created."));
  if (!branch.commit) return panel("Branch", "", el("p", { class: "problem" }, `Nothing was delivered: ${branch.why}`));
  return panel("Branch", branch.proof,
    el("p", { class: "type" }, el("code", {}, `git log --reverse ${run.base ? `${run.base.slice(0, 9)}..` : ""}${branch.name}`)),
    el("ol", { class: "commits" }, branch.commits.map(([commit, units, rest]) => el("li", {}, commit ? hex(commit) : el("small", {}, "no commit of its own"),
      el("div", {}, rest ? el("small", {}, "tests and other files of all tasks; the tasks listed here changed nothing else") : null, units.map(([id, why, same]) => el("div", { class: "unit" },
      mention(id, byId.get(id)?.m || id), el("small", {}, why, same.length ? ["; same change as ", ...same.flatMap((twin, at) => [at ? ", " : "", mention(twin)])] : null))))))));
}

function drawGroups() {
  const similar = index.groups.filter((group) => group.count > 1);
  const unique = index.groups.filter((group) => group.count === 1);
  return panel("Failures before the run", count(similar.length, "group of similar failures", "groups of similar failures"), el("ul", { class: "list" },
    similar.map((group) => el("li", {}, folded(`${group.count} × ${group.why}`, group.tests, group.count),
      group.scout ? el("small", {}, `${group.fixed} of ${group.count} fixed by `, mention(group.scout)) : null)),
    unique.length ? el("li", {}, folded(`${count(unique.length, "test")} with a unique failure`, unique.map((group) => group.why), unique.length)) : null));
}

// ---- time and cost ----

function svg(name, attributes, ...children) {
  const node = document.createElementNS($("#drawing").content.firstElementChild.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function drawTime() {
  const spent = tasks.filter((task) => task.c !== undefined);
  const total = (key) => tasks.reduce((sum, task) => sum + (task[key] ?? 0), 0);
  const kept = tasks.filter((task) => ["fixed", "improved"].includes(task.v)).length;
  const facts = [
    ["Time", run.created !== null && (run.ended ?? run.last) !== null ? span(Math.max(0, (run.ended ?? run.last) - run.created)) : "unknown"],
    ["Agent time", span(total("d"))],
    ["Cost", spent.length ? `${dollars(total("c"))}${spent.length < tasks.filter((task) => task.a).length ? " or more" : ""}` : "unknown"],
    spent.length && kept ? ["Cost per change", dollars(total("c") / kept)] : null,
    tasks.some((task) => task.k) ? ["Tokens", total("k").toLocaleString()] : null,
    ["Peak", count(Math.max(0, ...index.curve.map(([, number]) => number)), "agent")],
  ];
  return panel("Time and cost", "", el("dl", { class: "facts-list" }, facts.filter(Boolean).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))), drawCurve());
}

/** A chart of the number of working agents over time, with a mark below it for each verification. */
function drawCurve() {
  const { curve, checks } = index;
  if (curve.length < 2) return null;
  const [width, height] = [600, 90];
  const start = run.created ?? curve[0][0];
  const end = Math.max(run.ended ?? run.last ?? 0, curve.at(-1)[0], start + 1);
  const peak = Math.max(1, ...curve.map(([, number]) => number));
  const x = (t) => (((Math.min(Math.max(t, start), end) - start) / (end - start)) * width).toFixed(1);
  const y = (number) => (height - (number / peak) * (height - 4)).toFixed(1);
  const line = curve.map(([t, number]) => `H${x(t)}V${y(number)}`).join("");
  const path = `M0 ${height}${line}H${x(curve.at(-1)[0])}V${height}`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height + 12}`, preserveAspectRatio: "none", role: "img", "aria-label": `Working agents, ${peak} at most` },
    svg("line", { x1: 0, x2: width, y1: height, y2: height, class: "axis" }), svg("path", { d: path, class: "curve" }),
    ...checks.map(([t, good]) => svg("line", { x1: x(t), x2: x(t), y1: height + 3, y2: height + 12, class: good ? "check" : "check bad" })));
  return el("figure", { class: "graph" }, drawing, el("figcaption", {}, el("span", {}, `working agents, ${peak} at most`), checks.length ? el("span", {}, count(checks.length, "verification")) : null, el("span", {}, span(end - start))));
}

// ---- the list ----

function all() {
  change(NOTHING());
}

function ordered(some) {
  const rank = (task) => (NEEDS_LOOK.includes(task.tag) ? NEEDS_LOOK.indexOf(task.tag) : task.i === "left" ? 0.5 : NEEDS_LOOK.length);
  const by_ = { look: (a, b) => rank(a) - rank(b), slow: (a, b) => (b.d ?? 0) - (a.d ?? 0), cost: (a, b) => (b.c ?? 0) - (a.c ?? 0) }[state.order];
  return by_ ? [...some].sort((a, b) => by_(a, b) || a.at - b.at) : some;
}

function taskRow(task, about) {
  return link(task, { class: `test ${tone(task.tag)}` },
    el("i", { class: "sign", role: "img", "aria-label": task.tag, title: task.tag }, SIGNS[task.tag] ?? "·"),
    el("span", { class: "name" }, soft(task.n), about ? el("small", {}, about) : null),
    task.r && task.r !== "worker" ? el("small", { class: "tag" }, task.r) : null,
    task.a > 1 ? el("small", { class: "tag" }, `${task.a} attempts`) : null,
    task.i === "left" ? el("small", { class: "tag" }, "left out") : null,
    el("span", { class: "way" }, task.s ? el("small", {}, task.s) : null, task.s ? "→" : null, el("small", {}, CLAIMED[task.o]), run.kind === "improve" ? "→" : null,
      run.kind === "improve" ? badge(task.v, VERIFIED) : null),
    el("span", { class: "time" }, task.c === undefined ? "" : dollars(task.c)), el("span", { class: "time" }, span(task.d)));
}

function drawTasks() {
  const say = (task) => (task.v === "refused" || !task.m ? task.w : task.m) ?? "";
  if (state.order) return [el("section", {}, el("div", { class: "loose" }, ordered(tasks).map((task) => taskRow(task, say(task)))))];
  const files = new Map();
  tasks.forEach((task) => files.set(task.f ?? "", [...(files.get(task.f ?? "") ?? []), task]));
  return [...files].map(([file, own]) => el("section", {}, file || files.size > 1 ? el("h2", { class: "file" }, el("span", {}, file || "Other tasks"), el("small", {}, count(own.length, "task"))) : null,
    el("div", { class: "loose" }, own.map((task) => taskRow(task, say(task))))));
}

function show() {
  const wanted = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (task) => (!state.claimed.size || state.claimed.has(task.o)) && (!state.verified.size || state.verified.has(task.v)) && (!state.look || task.look)
    && wanted.every((word) => task.words.includes(word));
  const shown = new Set(tasks.filter(fits));
  if (state.view === "tasks") {
    for (const { node, one } of rows) node.hidden = !shown.has(one);
    for (const section of $("#list").querySelectorAll("section")) section.hidden = !section.querySelector(".test:not([hidden])");
    $("#nothing").hidden = shown.size > 0;
  }
  $("#count").textContent = filtered() ? `${shown.size.toLocaleString()} of ${count(tasks.length, "task")}` : count(tasks.length, "task");
  for (const node of document.querySelectorAll("[data-filter]")) {
    const set = state[node.dataset.filter];
    node.setAttribute("aria-pressed", set === true || (set instanceof Set && set.has(node.dataset.word)));
  }
  mark(filtered());
}

// ---- one task ----

function detailHead(task) {
  return el("header", { class: tone(task.tag) }, closer(), el("h2", { tabindex: "-1" }, soft(task.n)),
    el("p", { class: "facts" }, task.f ? el("code", {}, task.f) : null, task.r ? el("span", {}, task.r) : null, task.s ? el("span", {}, `${task.s} before`) : null,
      task.c !== undefined ? el("span", {}, dollars(task.c)) : null, task.d !== undefined ? el("span", {}, span(task.d)) : null, el("code", {}, task.id)));
}

function drawDetail(task, part) {
  const detail = $("#detail");
  const [last] = part.attempts;
  const cards = [];
  const body = el("div", { class: "body" },
    el("div", { class: "compare" }, claimBox(task, last), run.kind === "improve" ? verifyBox(task, part) : null),
    keptOut(part.verified), aboutTest(part),
    part.passes.length ? el("div", {}, el("h3", {}, "Tests that its fix makes pass"), folded(count(part.passes.length, "test"), part.passes, part.passes.length)) : null,
    part.attempts.map((attempt) => drawAttempt(part, attempt, cards)),
    part.attempts.length ? null : el("p", { class: "none" }, "No agent is working on it yet."));
  $(".wait", detail)?.remove();
  detail.append(body);
  film = { cards, close: () => cards.forEach((one) => one.stop()) };
}

function claimBox(task, last) {
  const claimed = last?.claimed;
  return el("section", { class: `box ${tone(task.o)}` }, el("h3", {}, "Claimed"), el("strong", {}, CLAIMED[task.o] ?? task.o),
    claimed?.summary ? el("pre", { class: "prose" }, claimed.summary) : null, claimed?.reason || last?.reason ? el("p", {}, claimed?.reason || last.reason) : null,
    last?.outcome === "invalid" ? el("p", { class: "none" }, "Its result is not valid:") : null,
    last?.result ? el("pre", {}, last.result) : null,
    claimed?.escalate.length ? el("div", { class: "leaks" }, el("h3", {}, "Escalations"), el("ul", {}, claimed.escalate.map((text) => el("li", {}, text)))) : null,
    claimed?.artifacts.length ? el("p", {}, "Artifacts: ", claimed.artifacts.flatMap((name, at) => [at ? ", " : "", el("code", {}, name)])) : null);
}

function verifyBox(task, part) {
  const verified = part.verified;
  const { fate } = part;
  return el("section", { class: `box ${tone(verified ? verified.result : "todo")}` }, el("h3", {}, "Verified"), el("strong", {}, verified ? VERIFIED[verified.result] : VERIFIED.none),
    verified ? el("p", {}, verified.reason) : el("p", { class: "none" }, task.o === "ok" ? "Not yet." : "Only tasks that are claimed to be ok are verified."),
    verified?.evidence.length ? el("ul", { class: "evidence" }, verified.evidence.map((one) => el("li", {}, el("span", {}, `${one.tests - one.bad.length} of ${count(one.tests, "test")} passed`),
      one.late ? el("span", { class: "badge" }, "out of time") : null, el("small", {}, [one.seconds !== null ? span(one.seconds) : "", one.t !== null ? when(one.t) : ""].filter(Boolean).join(", ")),
      one.bad.map(([test, outcome, text]) => el("details", {}, el("summary", {}, `${outcome}: ${test}`), runs(el("pre", { class: "output" }), text)))))) : null,
    verified?.files.length ? el("p", {}, "Files: ", verified.files.flatMap((name, at) => [at ? ", " : "", el("code", {}, name)])) : null,
    fate?.commit ? el("p", {}, "In the branch as ", hex(fate.commit), fate.as ? [", same change as ", mention(fate.as)] : `: ${fate.why}`, fate.proof ? el("small", {}, ` (${fate.proof})`) : null) : null,
    fate?.left ? el("p", { class: "problem" }, `Left out: ${fate.left}`) : null,
    fate?.output?.length ? runs(el("pre", { class: "output" }), fate.output) : null);
}

function keptOut(verified) {
  if (!verified?.kept_out.length) return null;
  return el("div", { class: "leaks" }, el("h3", {}, "Excluded from its changes"), el("ul", {}, verified.kept_out.map(([path, line, rule, text, allowed]) =>
    el("li", {}, el("b", {}, line ? `${path}:${line}` : path), ` ${rule}: ${text}${allowed ? " (allowed)" : ""}`))));
}

function aboutTest(part) {
  const { test, group } = part;
  const extra = Object.entries(part.fields).filter(([key]) => !["role", "status", "group"].includes(key));
  if (!test) return extra.length ? el("dl", { class: "facts-list" }, extra.map(([key, text]) => el("div", {}, el("dt", {}, key), el("dd", {}, text)))) : null;
  return el("div", { class: "cited" }, el("h3", {}, test.blocks.length > 1 ? "Blocks that its test covers" : test.blocks.length ? "Block that its test covers" : "Its test"),
    test.blocks.map((text) => el("div", { class: "block" }, blockText(text))),
    el("small", {}, `${test.file}${test.line ? `:${test.line}` : ""}, ${test.status} before`, test.outcomes.length ? ` (${test.outcomes.map(([, seen]) => seen.join(", ")).join("; ")})` : ""),
    group && group.count > 1 ? folded(`One of ${group.count} tests with similar failures: ${group.why}`, group.tests, group.count) : null,
    test.failure.length ? el("details", {}, el("summary", {}, "Its failure before the run"), runs(el("pre", { class: "output" }), test.failure)) : null);
}

function drawAttempt(part, attempt, cards) {
  const tokens = attempt.models.map(([name, in_, read, written, out]) => `${name}: ${count(in_ + read + written, "token")} in, ${out.toLocaleString()} out`).join("; ");
  const facts = el("p", { class: "facts" }, el("strong", { class: tone(attempt.outcome) }, CLAIMED[attempt.outcome] ?? attempt.outcome), el("span", {}, attempt.agent),
    attempt.seconds !== null ? el("span", {}, span(attempt.seconds)) : null, attempt.cost !== null ? el("span", {}, dollars(attempt.cost)) : null,
    attempt.tokens !== null ? el("span", { title: tokens || null }, count(attempt.tokens, "token")) : null, attempt.began !== null ? el("time", {}, when(attempt.began)) : null);
  const rest = attempt.uncommitted ? `; uncommitted changes are in ${attempt.uncommitted}` : "";
  const commits = attempt.commits === null ? null : el("p", { class: "type" }, `${attempt.commits ? count(attempt.commits, "commit") : "No commits"}${rest}`,
    attempt.commits && attempt.branch ? [": ", el("code", {}, `git log -p ${part.base ? `${part.base.slice(0, 9)}..` : ""}${attempt.branch}`)] : null);
  const home = el("section", { class: "attempt" }, el("h3", {}, part.attempts.length > 1 ? `Attempt ${attempt.n} of ${part.attempts.length}` : "Attempt"), facts,
    attempt.reason && attempt !== part.attempts[0] ? el("p", {}, attempt.reason) : null,
    !attempt.claimed && attempt.why ? el("p", { class: "none" }, `${attempt.why}${attempt.last ? `; its last line: ${attempt.last}` : ""}`) : null,
    attempt.errors.length ? el("div", { class: "leaks" }, el("h3", {}, "Could not be retrieved"), el("ul", {}, attempt.errors.map((text) => el("li", {}, text)))) : null, commits);
  const own = attempt.recording ? [card({ ...attempt.recording, name: "Recording" })] : [];
  own.forEach((one) => { one.home = home; cards.push(one); });
  home.append(...[
    own.length ? el("div", { class: "films" }, el("div", { class: "cards" }, own.map((one) => one.node))) : null,
    attempt.diff?.x ? el("div", { class: "changes" }, el("h3", {}, "Changes"), drawDiff(attempt.diff)) : null,
    attempt.prompt?.x ? el("details", { class: "asked" }, el("summary", {}, "Prompt"), el("pre", { class: "output" }, attempt.prompt.x), cut(attempt.prompt)) : null,
    attempt.outcome === "running" && !attempt.rows.length ? el("p", { class: "none" }, "Its transcript and changes appear here when it has ended.") : el("div", { class: "transcript" }, el("h3", {}, "Transcript"), transcript(attempt, own)),
    attempt.broken ? el("p", { class: "kept" }, `${count(attempt.broken, "line")} of the transcript could not be read.`) : null,
  ].filter(Boolean));
  if (attempt === part.attempts[0]) return home;
  return el("details", { class: "earlier" }, el("summary", {}, `Attempt ${attempt.n}: ${CLAIMED[attempt.outcome] ?? attempt.outcome}${attempt.reason ? `, ${firstWords(attempt.reason)}` : ""}`), home);
}

const cut = (file) => (file.cut ? el("p", { class: "gap" }, `${size(file.cut)} more not shown.`) : null);

/** A diff split by file. Lines count as changes only after a line with @@. */
function drawDiff(diff) {
  const files = [];
  let inside = false;
  for (const line of diff.x.split("\n")) {
    if (line.startsWith("diff --git ")) { inside = false; files.push({ name: line.slice(11), lines: [], more: 0, less: 0 }); }
    if (!files.length) files.push({ name: "", lines: [], more: 0, less: 0 });
    const file = files.at(-1);
    if (line.startsWith("@@")) inside = true;
    else if (!inside && /^(\+\+\+ b|--- a)\//.test(line)) file.name = line.slice(6);
    const kind = line.startsWith("@@") ? "hunk" : !inside ? "meta" : line.startsWith("+") ? "more" : line.startsWith("-") ? "less" : "";
    if (kind === "more" || kind === "less") file[kind] += 1;
    if (kind !== "meta" || !/^(diff --git|index|--- |\+\+\+ )/.test(line)) file.lines.push([kind, line]);
  }
  return el("div", { class: "diff" }, files.map((file) => el("details", { open: file.lines.length < 400 },
    el("summary", {}, el("code", {}, file.name), el("span", { class: "more" }, `+${file.more}`), el("span", { class: "less" }, `−${file.less}`)),
    el("pre", {}, file.lines.map(([kind, line]) => el("span", { class: kind }, `${line}\n`))))), cut(diff));
}

const PROMPTS = { user: "›", queued: "›", assistant: "●", tool: "$", error: "!", other: "·" };
/** Longer texts are folded: number of lines, number of characters. */
const [LINES, CHARS] = [14, 1600];

function rowBody(row) {
  const what = el("div", { class: "what" });
  if (row.n) what.append(el("b", { class: "tool" }, row.n));
  what.append(long(el("pre", {}, row.x), row.x));
  if (row.c) what.append(el("span", { class: "badge" }, `exit ${row.c}`));
  if (row.r) what.append(el("div", { class: "answer" }, long(runs(el("pre", {}), row.r), row.r.map((piece) => (typeof piece === "string" ? piece : piece[0])).join(""))));
  return what;
}

function long(node, text) {
  const lines = text.split("\n").length;
  if (lines <= LINES && text.length <= CHARS) return node;
  return el("details", {}, el("summary", {}, firstWords(text), el("small", {}, ` ${count(lines, "line")}`)), node);
}

listen({
  f: () => change({ look: !state.look }),
  v: () => change({ view: state.view === "tasks" ? "overview" : "tasks" }),
});
theme();
drawTop();
readHash();
drawList();
show();
// Do not reload while somebody reads a task or searches.
if (run.live) setInterval(() => { if (!state.chosen && !state.q && !$("#keys").open && !document.hidden) location.reload(); }, RELOAD_SECONDS * 1000);
