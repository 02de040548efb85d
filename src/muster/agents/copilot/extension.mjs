// What GitHub Copilot CLI tells an extension about its session, as muster's events and usage. run.sh puts it into the client's
// folder of this agent, beside the user's own extensions. Steps go one after the other, so that events keep their order.
//
// An extension is not told of permission dialogs unless a person grants it the right to answer them, and muster grants that to nobody.
// The client writes each of them down in the file of its session, so they are read from there, and answered with keys.
import { joinSession } from "@github/copilot-sdk/extension"
import { spawnSync } from "node:child_process"
import { closeSync, existsSync, fstatSync, openSync, readdirSync, readFileSync, readSync, renameSync, rmSync, watch, writeFileSync } from "node:fs"

const dir = process.env.MUSTER_AGENT_DIR
const states = `${dir}/client/home/session-state`

// An event of the kind `queued` is compared with what was sent, so it is cut late; the text of a `prompt` is kept whole in heard.json.
function event(kind, fields = {}) {
	const most = kind === "queued" ? 30_000 : 4000
	const short = (text) => (text.length > most ? text.slice(0, most - 1).toWellFormed() + "…" : text)
	const told = Object.entries(fields).map(([key, value]) => [
		key,
		typeof value === "number" ? value : short(String(value ?? "").toWellFormed()),
	])
	spawnSync("sh", [`${dir}/bin/event`, kind, JSON.stringify(Object.fromEntries(told)).slice(1, -1)], { stdio: "ignore" })
}

function write(name, text) {
	const half = `${dir}/client/.${process.pid}`
	writeFileSync(half, text, { mode: 0o600 })
	renameSync(half, `${dir}/${name}`)
}

const LIMIT = /usage limit|quota|hit your|rate limit exceeded/i

const detail = (input) => input?.command ?? input?.path ?? input?.pattern ?? input?.url ?? ""

function tokens(usage) {
	const [read, written] = [usage?.cacheReadTokens ?? 0, usage?.cacheWriteTokens ?? 0]
	return {
		input_tokens: Math.max(0, (usage?.inputTokens ?? 0) - read - written),
		output_tokens: usage?.outputTokens ?? 0,
		cache_read_tokens: read,
		cache_write_tokens: written,
	}
}

function parsed(line) {
	try {
		return JSON.parse(line)
	} catch {} // the last line of one that was killed
}

// What all of its conversations used, in all and by model. Each answer of a model is written down once; a clone has those of its origin.
function tally() {
	const sum = { ...tokens(), models: {} }
	const seen = new Set()
	for (const id of existsSync(states) ? readdirSync(states) : []) {
		const file = `${states}/${id}/events.jsonl`
		if (!existsSync(file)) continue
		for (const line of readFileSync(file, "utf8").split("\n")) {
			if (!line.startsWith('{"type":"session.usage_record"')) continue
			const record = parsed(line)
			const usage = record?.data?.usage
			if (!usage || seen.has(record.id)) continue
			seen.add(record.id)
			const used = tokens(usage)
			const model = (sum.models[usage.model] ??= tokens())
			for (const key in used) {
				sum[key] += used[key]
				model[key] += used[key]
			}
		}
	}
	write("usage.json", JSON.stringify(sum) + "\n")
}

const session = await joinSession({})
const where = `${states}/${session.sessionId}/events.jsonl`
const running = new Set() // calls of tools
const permissions = new Map() // dialogs that ask for a permission, with the call that each is for
const questions = new Map() // questions, with their fields and what was answered so far
const queued = [] // what it keeps for later, as it was told
let busy = false
let last = ""
let failed
let refused = false

let line = Promise.resolve()
const next = (step) => (line = line.then(step).catch(() => {}))

// Dialogs for permissions, from the file of the session. What was there before is history.
let offset = existsSync(where) ? readFileSync(where).length : 0
let rest = ""
function read() {
	if (!existsSync(where)) return
	const file = openSync(where, "r")
	const bytes = Buffer.alloc(Math.max(0, fstatSync(file).size - offset))
	offset += readSync(file, bytes, 0, bytes.length, offset)
	closeSync(file)
	const lines = (rest + bytes.toString("utf8")).split("\n")
	rest = lines.pop()
	for (const text of lines) {
		if (!text.startsWith('{"type":"permission.')) continue
		const { type, data } = parsed(text) ?? {}
		if (type === "permission.requested") requested(data)
		else if (type === "permission.completed") settled(data.requestId)
	}
}

function requested({ requestId, permissionRequest: asked, resolvedByHook }) {
	if (resolvedByHook || !running.has(asked?.toolCallId)) return
	permissions.set(requestId, asked.toolCallId)
	const about = asked.fullCommandText ?? asked.fileName ?? asked.path ?? asked.url ?? asked.toolName ?? asked.intention
	event("permission", { tool: asked.kind, detail: about })
}

function settled(requestId) {
	if (permissions.delete(requestId) && !permissions.size) event("answered")
}

// Questions: each has an id, and `muster answer` leaves {dialog, answer: [words]} in the file `answer`.
let listening
function ask(id, fields, reply) {
	questions.set(id, { fields, answers: [], reply })
	if (questions.size === 1) shown()
	listening ??= setInterval(() => existsSync(`${dir}/answer`) && next(given), 100)
}

function shown() {
	const [[id, { fields, answers }]] = questions
	const { text, choices, own, many } = fields[answers.length]
	const more = { ...(own ? { own: "yes" } : {}), ...(many ? { many: "yes" } : {}) }
	event("ask", { text, choices: choices.map((entry) => entry.replaceAll("\n", " ")).join("\n"), ...more, dialog: `${id}.${answers.length}` })
}

async function given() {
	const { dialog, answer } = JSON.parse(readFileSync(`${dir}/answer`, "utf8"))
	rmSync(`${dir}/answer`, { force: true })
	const [[id, { fields, answers, reply }] = []] = questions
	if (!id || dialog !== `${id}.${answers.length}`) return
	answers.push(answer.map(String))
	if (answers.length === fields.length) await reply(answers)
	else shown()
}

function closed(id) {
	if (!questions.delete(id)) return
	if (questions.size) return shown()
	clearInterval(listening)
	listening = undefined
	event("answered")
}

// The fields of a form, each as one question. Numbers and yes or no are taken as words and given back as what they are.
function form({ message, requestedSchema }) {
	const fields = Object.entries(requestedSchema?.properties ?? {}).map(([name, schema]) => {
		const entries = schema.items ?? schema
		const named = entries.oneOf ?? entries.anyOf
		const values = named ? named.map((one) => one.const) : (entries.enum ?? (schema.type === "boolean" ? ["Yes", "No"] : []))
		const labels = named ? named.map((one) => one.title ?? one.const) : (entries.enumNames ?? values)
		const value = (word) => {
			if (schema.type === "boolean") return /^y/i.test(word)
			if (schema.type === "number" || schema.type === "integer") return Number(word)
			return values[labels.indexOf(word)] ?? word
		}
		const many = schema.type === "array"
		const title = schema.description ?? schema.title ?? name
		return { name, title, choices: labels.map(String), own: schema.type !== "boolean" && !many, many, value }
	})
	for (const field of fields) field.text = fields.length > 1 ? `${message}\n${field.title}` : message
	return fields
}

// What `muster message` left here, as if it had been typed: in the middle of a turn the model gets it with the result of the next tool.
const message = `${dir}/message`
async function sent() {
	const prompt = readFileSync(message, "utf8")
	rmSync(message)
	await session.send(busy ? { prompt, mode: "immediate" } : { prompt })
}

async function waits() {
	const { steeringMessages = [], items = [] } = (await session.rpc.queue.pendingItems()) ?? {}
	const now = [...steeringMessages, ...items.map((item) => item.displayText ?? item.prompt ?? "")]
	const known = [...queued]
	for (const text of now) {
		// It puts what is typed in the middle of a turn behind what is waiting already.
		const at = known.findIndex((before) => text === before || text.startsWith(`${before}\n\n`))
		const [before] = at >= 0 ? known.splice(at, 1) : []
		if (busy && text !== before) event("queued", { text: before === undefined ? text : text.slice(before.length + 2) })
	}
	queued.splice(0, Infinity, ...now)
}

const on = {
	"user.message": ({ content, source }) => {
		if (source && source !== "user") return // such as a skill that the client reads out
		busy = true
		last = ""
		failed = undefined
		write("heard.json", JSON.stringify(content.toWellFormed()))
		event("prompt", { text: content })
	},
	"pending_messages.modified": waits,
	"assistant.message": ({ content }) => {
		if (content) last = content
	},
	"tool.execution_start": ({ toolCallId, toolName, arguments: given }) => {
		running.add(toolCallId)
		if (!permissions.size && !questions.size) event("tool", { name: toolName, detail: detail(given) })
		read()
	},
	"tool.execution_complete": ({ toolCallId }) => {
		running.delete(toolCallId)
		for (const [id, call] of permissions) if (call === toolCallId) settled(id)
	},
	"elicitation.requested": (request) => {
		const { requestId, mode } = request
		const fields = mode === "url" ? [] : form(request)
		if (!fields.length) return event("ask", { text: request.message }) // for a person
		ask(requestId, fields, (answers) => {
			const content = fields.map(({ name, many, value }, n) => [name, many ? answers[n].map(value) : value(answers[n][0])])
			const result = { action: "accept", content: Object.fromEntries(content) }
			return session.rpc.ui.handlePendingElicitation({ requestId, result })
		})
	},
	"elicitation.completed": ({ requestId }) => closed(requestId),
	"user_input.requested": ({ requestId, question, choices = [], allowFreeform }) =>
		ask(requestId, [{ text: question, choices, own: allowFreeform !== false }], ([[answer]]) => {
			const response = { answer, wasFreeform: !choices.includes(answer) }
			return session.rpc.ui.handlePendingUserInput({ requestId, response })
		}),
	"user_input.completed": ({ requestId }) => closed(requestId),
	"exit_plan_mode.requested": ({ summary }) => event("ask", { text: summary || "a plan is ready" }),
	"exit_plan_mode.completed": () => event("answered"),
	"model.call_failure": ({ statusCode, errorMessage }) => {
		refused = true
		event("retry", { text: errorMessage ?? `status ${statusCode}` })
	},
	"assistant.turn_start": () => {
		busy = true
		if (refused) event("answered")
		refused = false
	},
	"session.error": ({ errorType, message }) => (failed = { errorType, message }),
	"session.idle": ({ aborted }) => {
		const error = failed
		busy = refused = false
		failed = undefined
		running.clear()
		permissions.clear()
		questions.clear()
		clearInterval(listening)
		listening = undefined
		tally()
		if (aborted) return event("interrupted")
		if (!error) return event("turn-end", { text: last })
		const { errorType, message } = error
		event(errorType === "quota" || LIMIT.test(message) ? "limit" : "error", { text: message, error: errorType })
	},
}

event("session", { where })
for (const [type, heard] of Object.entries(on))
	session.on(type, ({ agentId, data }) => {
		// What a subagent does is a part of the turn, but for what it asks.
		if (!agentId || type.endsWith("requested") || type.endsWith("completed") || type.startsWith("tool.")) next(() => heard(data))
	})
session.on("assistant.usage", () => next(tally))
const folder = where.slice(0, where.lastIndexOf("/"))
watch(existsSync(folder) ? folder : states, { recursive: !existsSync(folder) }, () => next(read))

rmSync(message, { force: true }) // whoever left it has been told that it was not sent
setInterval(() => existsSync(message) && next(sent), 100)

// The first message is sent from here: given to the client itself, it could be sent before anybody listens.
const first = `${dir}/client/first`
if (existsSync(first)) {
	const prompt = readFileSync(first, "utf8")
	rmSync(first)
	next(() => session.send({ prompt }))
} else next(() => event("ready"))
