// What opencode tells a plugin of its terminal interface, as muster's events, transcript and usage. It is loaded beside the
// user's own plugins by run.sh. Steps go one after the other, so that events keep their order.
import { spawnSync } from "node:child_process"
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"

const dir = process.env.MUSTER_AGENT_DIR

// One of the kind `queued` is compared with what was sent, so it is cut late; a text of the kind `prompt` is kept whole in heard.json.
function event(kind, fields = {}) {
	const most = kind === "queued" ? 30_000 : 4000
	const short = (text) => (text.length > most ? text.slice(0, most - 1).toWellFormed() + "…" : text)
	const told = Object.entries(fields).map(([key, value]) => [key, typeof value === "number" ? value : short(String(value ?? ""))])
	const inside = JSON.stringify(Object.fromEntries(told)).slice(1, -1)
	spawnSync("sh", [`${dir}/bin/event`, kind, inside], { stdio: "ignore" })
}

function write(name, text) {
	const half = `${dir}/client/.${process.pid}`
	writeFileSync(half, text, { mode: 0o600 })
	renameSync(half, `${dir}/${name}`)
}

function told(name) {
	try {
		return readFileSync(`${dir}/${name}`, "utf8").split("\n").filter(Boolean)
	} catch {
		return []
	}
}

// A refusal that names a moment further away than this is a limit, not a busy server; so is one in these words.
const LONG_MS = 60_000
const LIMIT = /usage limit|quota|hit your/i

const words = (error) => error?.data?.message || error?.name || "failed"
const interrupted = (error) => error?.name === "MessageAbortedError"

function counted(tokens) {
	return {
		input_tokens: tokens?.input ?? 0,
		output_tokens: (tokens?.output ?? 0) + (tokens?.reasoning ?? 0),
		cache_read_tokens: tokens?.cache?.read ?? 0,
		cache_write_tokens: tokens?.cache?.write ?? 0,
	}
}

const detail = (input) => input?.command ?? input?.filePath ?? input?.pattern ?? ""

// One message of the client as entries of a transcript.
function entries({ info, parts }) {
	const found = []
	for (const part of parts) {
		const t = (part.time?.start ?? part.state?.time?.start ?? info.time.created) / 1000
		if (part.type === "text" && part.text && !part.synthetic && !part.ignored)
			found.push({ t, role: info.role, text: part.text })
		if (part.type === "tool") {
			const { input, output, error } = part.state
			const text = `${part.tool}: ${detail(input) || JSON.stringify(input ?? {})}`
			const result = output ?? error ?? null
			found.push({ t, role: "tool", text, tool: { name: part.tool, input, output: result && String(result).slice(0, 10_000) } })
		}
	}
	if (info.error && !interrupted(info.error))
		found.push({ t: (info.time.completed ?? info.time.created) / 1000, role: "error", text: words(info.error) })
	if (info.role === "assistant") {
		for (const entry of found) entry.model = info.modelID
		if (found.length) found[0].usage = counted(info.tokens)
	}
	return found
}

// What all messages used, in all and by model. A cost of 0 is a price that the client does not know.
function tally(messages) {
	const sum = { ...counted(), models: {} }
	let cost = 0
	for (const { info } of messages) {
		const used = counted(info.tokens)
		if (info.role !== "assistant" || !Object.values(used).some(Boolean)) continue
		const model = (sum.models[info.modelID] ??= counted())
		for (const key in used) {
			sum[key] += used[key]
			model[key] += used[key]
		}
		cost = info.cost > 0 ? cost + info.cost : NaN
	}
	return cost > 0 ? { ...sum, cost_usd: cost } : sum
}

async function tui(api) {
	const sessions = told("client/sessions") // those of this agent, the newest last; a person may have opened another
	const asked = new Set() // messages of the user, until their text is there
	const begun = new Set() // calls of tools
	const open = new Map() // dialogs: {kind, fields} and, of a question, what is asked and what was answered so far
	const children = new Set()
	const auto = process.argv.includes("--auto") // nobody is asked
	let busy = false
	let refused = false
	let turn = false // it says twice that it is idle after a turn that failed
	let failed
	let last = ""

	let line = Promise.resolve()
	const next = (step) => (line = line.then(step).catch(() => {}))
	const child = (id) => children.has(id) || Boolean(api.state.session.get(id)?.parentID)

	async function messages(sessionID) {
		return (await api.client.session.messages({ sessionID })).data ?? []
	}

	async function save() {
		const own = []
		const used = []
		for (const sessionID of sessions) {
			own.push(...(await messages(sessionID)))
			const below = (await api.client.session.children({ sessionID })).data ?? []
			for (const { id } of below) used.push(...(await messages(id)))
		}
		const all = own.flatMap(entries)
		const newest = all.slice(all.findLastIndex((entry) => entry.role === "user") + 1)
		last = newest.findLast((entry) => entry.role === "assistant")?.text ?? ""
		write("client/transcript.jsonl", all.map((entry) => JSON.stringify(entry) + "\n").join(""))
		write("usage.json", JSON.stringify(tally([...own, ...used])) + "\n")
	}

	// The newest conversation in the form that `opencode import` takes: a clone of this agent goes on with it.
	async function keep() {
		const sessionID = sessions.at(-1)
		if (!sessionID) return
		const info = (await api.client.session.get({ sessionID })).data
		if (info) write("session/export.json", JSON.stringify({ info, messages: await messages(sessionID) }))
	}

	let due = false
	function soon() {
		if (due) return
		due = true
		next(() => ((due = false), save()))
	}

	function took(kind, text) {
		next(() => {
			if (kind === "prompt") write("heard.json", JSON.stringify(text.toWellFormed()))
			event(kind, { text: text.toWellFormed() })
		})
	}

	function prompt(sessionID, text) {
		if (sessions.at(-1) !== sessionID) {
			if (sessions.includes(sessionID)) sessions.splice(sessions.indexOf(sessionID), 1)
			sessions.push(sessionID)
			write("client/sessions", sessions.join("\n") + "\n")
		}
		took(busy ? "queued" : "prompt", text)
		turn = true
	}

	// Of several dialogs one is shown after the other, and so are several questions of one.
	function shown() {
		const [[id, { kind, fields, questions, answers }]] = open
		if (kind === "permission") return next(() => event(kind, { ...fields, dialog: id }))
		const { question, options, multiple, custom } = questions[answers.length]
		const choices = (options ?? []).map(({ label }) => label.replaceAll("\n", " ")).join("\n")
		const more = { ...(custom === false ? {} : { own: "yes" }), ...(multiple ? { many: "yes" } : {}) }
		next(() => event(kind, { text: question, choices, ...more, dialog: `${id}.${answers.length}` }))
	}

	let listening
	function dialog(id, kind, about) {
		// Its own --auto misses what is asked while it is still starting.
		if (kind === "permission" && auto) return next(() => api.client.permission.reply({ requestID: id, reply: "once" }))
		open.set(id, { kind, ...about })
		if (open.size === 1) shown()
		listening ??= setInterval(() => existsSync(`${dir}/answer`) && next(given), 100)
	}

	// What `muster answer` left here: {dialog, answer: [words]}. It counts for the dialog that it names, and for no other.
	async function given() {
		const { dialog: named, answer } = JSON.parse(readFileSync(`${dir}/answer`, "utf8"))
		rmSync(`${dir}/answer`, { force: true })
		const [[requestID, { kind, questions, answers }] = []] = open
		if (kind === "permission" && named === requestID)
			await api.client.permission.reply({ requestID, reply: answer[0] === "yes" ? "once" : "reject" })
		if (kind !== "ask" || named !== `${requestID}.${answers.length}`) return
		answers.push(answer.map(String))
		if (answers.length === questions.length) await api.client.question.reply({ requestID, answers })
		else shown()
	}

	function closed(id) {
		if (!open.delete(id)) return
		if (open.size) return shown()
		clearInterval(listening)
		listening = undefined
		next(() => event("answered"))
	}

	const on = {
		"session.created": ({ info }) => info.parentID && children.add(info.id),
		"session.status": ({ sessionID, status }) => {
			if (child(sessionID)) return
			busy = status.type !== "idle"
			turn ||= busy
			if (status.type === "busy" && refused) next(() => event("answered"))
			refused = status.type === "retry"
			if (!refused) return
			const limit = LIMIT.test(status.message) || status.next - Date.now() > LONG_MS
			const until = limit && status.next ? { until: status.next / 1000 } : {}
			next(() => event(limit ? "limit" : "retry", { text: status.message, ...until }))
		},
		"session.error": ({ sessionID, error }) => {
			if (!sessionID || !child(sessionID)) failed = error
		},
		"session.idle": ({ sessionID }) => {
			if (child(sessionID) || !turn) return
			turn = false
			const error = failed
			failed = undefined
			open.clear()
			next(async () => {
				await save().catch(() => {})
				await keep().catch(() => {})
				if (interrupted(error)) event("interrupted")
				else if (error) event(LIMIT.test(words(error)) ? "limit" : "error", { text: words(error), error: error.name })
				else event("turn-end", { text: last })
			})
		},
		"message.updated": ({ sessionID, info }) => {
			if (info.role === "user" && !child(sessionID)) asked.add(info.id)
			if (info.time.completed) soon()
		},
		"message.part.updated": ({ sessionID, part }) => {
			if (part.type === "text" && !part.synthetic && asked.delete(part.messageID)) prompt(sessionID, part.text)
			if (part.type === "tool" && part.state.status === "running" && !begun.has(part.id)) {
				begun.add(part.id)
				if (!open.size) next(() => event("tool", { name: part.tool, detail: detail(part.state.input) }))
			}
		},
		"permission.asked": ({ id, permission, patterns, metadata }) =>
			dialog(id, "permission", { fields: { tool: permission, detail: metadata?.command ?? patterns.join(" ") } }),
		"permission.replied": ({ requestID }) => closed(requestID),
		"question.asked": ({ id, questions }) => questions.length && dialog(id, "ask", { questions, answers: [] }),
		"question.replied": ({ requestID }) => closed(requestID),
		"question.rejected": ({ requestID }) => closed(requestID),
	}
	for (const [type, heard] of Object.entries(on)) api.event.on(type, ({ properties }) => heard(properties))

	// With a first message, which waits for its plugins, it is not ready before that is done. Else it is when its input box has the keyboard.
	if (process.env.MUSTER_FIRST) return
	// One that goes on with a conversation drops what is sent before it has loaded that.
	const resumed = process.argv.includes("--session") ? sessions.at(-1) : undefined
	const timer = setInterval(() => {
		if (!api.renderer.currentFocusedRenderable) return
		if (resumed && !api.state.session.messages(resumed).length) return
		clearInterval(timer)
		next(() => event("ready"))
	}, 50)
}

export default { id: "muster", tui }
