// What opencode tells a plugin of its terminal interface, as muster's events, transcript and usage. It is loaded beside the
// user's own plugins by opencode-run.sh. Steps go one after the other, so that events keep their order.
import { spawnSync } from "node:child_process"
import { readFileSync, renameSync, writeFileSync } from "node:fs"

const dir = process.env.MUSTER_AGENT_DIR

// One of the kind `queued` is compared with what was sent, so it is cut late; a text of the kind `prompt` is kept whole in heard.json.
function event(kind, fields = {}) {
	const most = kind === "queued" ? 30_000 : 4000
	const short = (text) => (text.length > most ? text.slice(0, most - 1).toWellFormed() + "…" : text)
	const told = Object.entries(fields).map(([key, value]) => [key, short(String(value ?? ""))])
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
	const open = new Map() // dialogs
	const children = new Set()
	const auto = process.argv.includes("--auto") // it answers its own permission dialogs
	let busy = false
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

	// Of several dialogs one is shown after the other.
	function dialog(id, kind, fields) {
		if (kind === "permission" && auto) return
		open.set(id, [kind, fields])
		if (open.size === 1) next(() => event(kind, fields))
	}

	function closed(id, answer) {
		if (!open.delete(id)) return
		const [shown] = open.values()
		if (answer) took("prompt", answer)
		else if (!shown) next(() => event("answered"))
		if (shown) next(() => event(...shown))
	}

	const on = {
		"session.created": ({ info }) => info.parentID && children.add(info.id),
		"session.status": ({ sessionID, status }) => {
			if (child(sessionID)) return
			busy = status.type !== "idle"
			turn ||= busy
			if (status.type === "retry") next(() => event("retry", { text: status.message }))
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
				if (interrupted(error)) event("interrupted")
				else if (error) event("error", { text: words(error), error: error.name })
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
			dialog(id, "permission", { tool: permission, detail: metadata?.command ?? patterns.join(" ") }),
		"permission.replied": ({ requestID }) => closed(requestID),
		"question.asked": ({ id, questions }) => dialog(id, "ask", { text: questions[0]?.question }),
		"question.replied": ({ requestID, answers }) => closed(requestID, answers.flat().join(", ")),
		"question.rejected": ({ requestID }) => closed(requestID),
	}
	for (const [type, heard] of Object.entries(on)) api.event.on(type, ({ properties }) => heard(properties))

	// With a first message, which waits for its plugins, it is not ready before that is done. Else it is when its input box has the keyboard.
	if (process.env.MUSTER_FIRST) return
	const timer = setInterval(() => {
		if (!api.renderer.currentFocusedRenderable) return
		clearInterval(timer)
		next(() => event("ready"))
	}, 50)
}

export default { id: "muster", tui }
