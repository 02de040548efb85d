// What pi tells an extension, as muster's events and usage. It is loaded beside the user's own extensions by run.sh. pi itself
// asks for no permissions: with rules (client/rules) the calls of tools that none of them covers are asked for here.
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { basename, dirname } from "node:path"

const dir = process.env.MUSTER_AGENT_DIR
const rules = `${dir}/client/rules`
// The names that rules have for its tools.
const TOOLS = { bash: "Bash", edit: "Edit", write: "Write", read: "Read", grep: "Grep", find: "Glob", ls: "LS" }
const READING = ["read", "grep", "find", "ls"]
// Errors after which it tries again by itself, in its own words for them.
const PASSING =
	/overloaded|provider.?returned.?error|rate.?limit|too many requests|429|500|502|503|504|service.?unavailable|server.?error|internal.?error|network.?error|connection|websocket|other side closed|fetch failed|upstream|socket hang up|ended without|timed? ?out|terminated|retry delay/i
const LIMIT = /usage limit|quota|hit your/i

// An event of the kind `queued` is compared with what was sent, so it is cut late; the text of a `prompt` is kept whole in heard.json.
function event(kind, fields = {}) {
	const most = kind === "queued" ? 30_000 : 4000
	const short = (text) => (text.length > most ? text.slice(0, most - 1).toWellFormed() + "…" : text)
	const told = Object.entries(fields).map(([key, value]) => [
		key,
		typeof value === "number" ? value : short(String(value ?? "")),
	])
	spawnSync("sh", [`${dir}/bin/event`, kind, JSON.stringify(Object.fromEntries(told)).slice(1, -1)], { stdio: "ignore" })
}

function write(name, text) {
	const half = `${dir}/client/.${process.pid}`
	writeFileSync(half, text, { mode: 0o600 })
	renameSync(half, `${dir}/${name}`)
}

function plain(content) {
	if (typeof content === "string") return content
	return (content ?? []).filter((part) => part.type === "text").map((part) => part.text).join("")
}

function tokens(usage) {
	return {
		input_tokens: usage?.input ?? 0,
		output_tokens: usage?.output ?? 0,
		cache_read_tokens: usage?.cacheRead ?? 0,
		cache_write_tokens: usage?.cacheWrite ?? 0,
	}
}

function kept() {
	const found = []
	for (const name of readdirSync(`${dir}/session`).filter((name) => name.endsWith(".jsonl")))
		for (const line of readFileSync(`${dir}/session/${name}`, "utf8").split("\n")) {
			try {
				found.push(JSON.parse(line).message)
			} catch {} // the last line of one that was killed
		}
	return found
}

// What all of its conversations used, in all and by model. A cost of 0 is a price that it does not know.
function tally() {
	const sum = { ...tokens(), models: {} }
	let cost = 0
	for (const message of kept()) {
		if (message?.role !== "assistant") continue
		const used = tokens(message.usage)
		if (!Object.values(used).some(Boolean)) continue
		const model = (sum.models[message.model] ??= tokens())
		for (const key in used) {
			sum[key] += used[key]
			model[key] += used[key]
		}
		const total = message.usage.cost?.total
		cost = total > 0 ? cost + total : NaN
	}
	write("usage.json", JSON.stringify(cost > 0 ? { ...sum, cost_usd: cost } : sum) + "\n")
}

const detail = (input) => input?.command ?? input?.path ?? input?.pattern ?? ""

// What the rules say of a call: allow, deny or ask.
function ruled(name, input) {
	const said = JSON.stringify({ tool_name: TOOLS[name] ?? name, tool_input: { command: input?.command ?? "" } })
	const verdict = spawnSync("sh", [`${dir}/bin/rule`, rules], { input: said, encoding: "utf8" }).stdout?.trim()
	if (verdict === "allow" || verdict === "deny") return verdict
	return verdict === "" && (name === "bash" || READING.includes(name)) ? "allow" : "ask"
}

// How often it tries again, and after which time.
async function retries(cwd) {
	try {
		const { SettingsManager } = await import("@mariozechner/pi-coding-agent")
		return SettingsManager.create(cwd).getRetrySettings()
	} catch {
		return { enabled: true, maxRetries: 3, baseDelayMs: 2000 }
	}
}

// Its dialogs, each with an id by which `muster answer` names it: {dialog, answer: [words]} in the file `answer`.
let asked = 0

async function answered(id, signal) {
	while (!signal.aborted) {
		try {
			const { dialog, answer } = JSON.parse(readFileSync(`${dir}/answer`, "utf8"))
			rmSync(`${dir}/answer`, { force: true })
			if (dialog === id) return String(answer[0] ?? "")
		} catch {} // there is none yet
		await new Promise((resolve) => setTimeout(resolve, 100))
	}
}

// Show a dialog until it is answered, in the terminal or by the file. `show` gets the signal that closes it.
async function ask(kind, fields, show, signal) {
	const id = `${process.pid}.${++asked}`
	const closed = new AbortController()
	const shown = show(signal ? AbortSignal.any([signal, closed.signal]) : closed.signal)
	const given = new AbortController()
	event(kind, { ...fields, dialog: id })
	const words = await Promise.race([shown.then(() => undefined), answered(id, given.signal)])
	given.abort()
	closed.abort()
	return words ?? (await shown)
}

export default function (pi) {
	const first = process.env.MUSTER_PROMPT
	delete process.env.MUSTER_PROMPT
	let attempts = 0
	let failure // tells of a turn that failed, unless it begins again before that
	let idle = true
	const over = () => event(idle ? "ready" : "answered")

	// Dialogs of other extensions: all have the same ctx.ui.
	function watch(ui) {
		if (!ui || ui.muster) return
		const { select, input, editor, custom } = ui
		ui.muster = { select }
		ui.select = (title, options, more) => {
			const show = (signal) => select(title, options, { ...more, signal })
			return ask("ask", { text: title, choices: options.join("\n") }, show, more?.signal).finally(over)
		}
		ui.confirm = async (title, text, more) => (await ui.select(`${title}\n${text}`, ["Yes", "No"], more)) === "Yes"
		ui.input = (title, hint, more) => {
			const show = (signal) => input(title, hint, { ...more, signal })
			return ask("ask", { text: title, own: "yes" }, show, more?.signal).finally(over)
		}
		// These cannot be closed from here: they are for a person.
		ui.editor = (title, ...more) => (event("ask", { text: title }), editor(title, ...more).finally(over))
		ui.custom = (...more) => (event("ask", { text: "an extension shows a dialog" }), custom(...more).finally(over))
	}

	function opened(ctx) {
		watch(ctx.ui)
		const file = ctx.sessionManager.getSessionFile()
		if (!file || dirname(file) !== `${dir}/session`) return
		write("client/opened", basename(file) + "\n")
		event("session", { where: file })
	}

	pi.on("session_start", ({ reason }, ctx) => {
		opened(ctx)
		if (reason === "startup" && first) setTimeout(() => pi.sendUserMessage(first), 0)
		else if (reason !== "reload") event("ready")
	})
	pi.on("input", ({ text }, ctx) => {
		if (!ctx.isIdle()) event("queued", { text: text.toWellFormed() })
	})
	pi.on("message_start", ({ message }) => {
		if (message.role !== "user") return
		const text = plain(message.content).toWellFormed()
		write("heard.json", JSON.stringify(text))
		event("prompt", { text })
	})
	pi.on("agent_start", () => {
		idle = false
		if (failure) event("answered")
		clearTimeout(failure)
		failure = undefined
	})
	pi.on("tool_execution_start", ({ toolName, args }) => event("tool", { name: toolName, detail: detail(args) }))
	pi.on("tool_call", async ({ toolName, input }, ctx) => {
		if (!existsSync(rules)) return
		const verdict = ruled(toolName, input)
		if (verdict === "deny") return { block: true, reason: "The user's rules do not allow this." }
		if (verdict === "allow") return
		const select = ctx.ui.muster?.select ?? ctx.ui.select
		const show = (signal) => select(`Allow ${toolName}: ${detail(input)}`, ["No", "Yes"], { signal })
		const answer = await ask("permission", { tool: toolName, detail: detail(input) }, show, ctx.signal)
		event("answered")
		if (answer !== "Yes" && answer !== "yes") return { block: true, reason: "The user did not allow this." }
	})
	pi.on("turn_end", tally)
	pi.on("agent_end", async ({ messages }, ctx) => {
		idle = true
		tally()
		const last = messages.findLast((message) => message.role === "assistant")
		if (last?.stopReason === "aborted") return event("interrupted")
		if (last?.stopReason !== "error") {
			attempts = 0
			return event("turn-end", { text: plain(last?.content) })
		}
		const text = last.errorMessage || "failed"
		const failed = () => {
			attempts = 0
			failure = undefined
			const minutes = /in ~?(\d+) min/.exec(text)?.[1]
			const until = minutes ? { until: Date.now() / 1000 + 60 * minutes } : {}
			event(LIMIT.test(text) ? "limit" : "error", { text, ...until })
		}
		const { enabled, maxRetries, baseDelayMs } = await retries(ctx.cwd)
		if (!enabled || !PASSING.test(text) || attempts >= maxRetries) return failed()
		event("retry", { text })
		// That somebody ended it meanwhile shows by nothing happening.
		failure = setTimeout(failed, baseDelayMs * 2 ** attempts++ + 1500)
	})
	pi.on("session_shutdown", () => clearTimeout(failure))
}
