/**
 * The Pi side of pi-contextd: forwards Pi's events to the daemon and performs the effects of its replies.
 * Policy lives in the daemon; what is here is wiring. Facts named here are Pi's behaviour, both versions.
 */
import { statSync } from "node:fs";
import {
	type AgentToolResult,
	type ExtensionAPI,
	type ExtensionCommandContext,
	type ExtensionContext,
	getAgentDir,
	type MessageEndEvent,
	VERSION,
} from "@earendil-works/pi-coding-agent";
import { Box, Text } from "@earendil-works/pi-tui";
import {
	backToEditor,
	CAPTURE_COMMAND,
	type Effect,
	forgetTaken,
	hasContextEdits,
	messageOf,
	perform,
	release,
	say,
	sendHeld,
	type Stage,
	unfold,
} from "./effects.ts";
import { daemonCommand, Link, PROTOCOL, SEARCH_MS, startDeadline } from "./link.ts";
import { idOf, Outliner } from "./outline.ts";
import { mendAppends } from "./mend.ts";
import { DaemonGone, Refused } from "./peer.ts";
import type { Initialized, Methods, Replies, SessionStart } from "./protocol.d.ts";
import { slot as processSlot } from "./slot.ts";

type SessionMethod = {
	[M in keyof Methods & keyof Replies]: Methods[M] extends { sessionId: string; leafId: string | null } ? M : never;
}[keyof Methods & keyof Replies];
type Params<M extends SessionMethod> = Omit<Methods[M], "sessionId" | "leafId" | "again">;

type AgentMessage = MessageEndEvent["message"];

/** What the daemon wants done instead may fail too; it is asked this often. */
const ANSWERS_TO_FAILURE = 3;

export default function contextd(pi: ExtensionAPI): void {
	const slot = processSlot();
	const outliner = new Outliner();
	let command: ExtensionCommandContext | undefined;
	let link: Link | undefined;
	let replaced = false;
	let toldLost = false;
	let reason: SessionStart["reason"] = "startup";

	// Asking

	function linkFor(ctx: ExtensionContext): Link {
		const agentDir = getAgentDir();
		link ??= new Link(daemonCommand(process.env, agentDir), agentDir, {
			initialize: () => ({
				protocol: PROTOCOL,
				piVersion: VERSION,
				ui: ctx.mode,
				cwd: ctx.cwd,
				agentDir,
				trusted: ctx.isProjectTrusted(),
				mode: slot.modes.get(ctx.sessionManager.getSessionId()) ?? null,
			}),
			attached: async (about) => {
				slot.modes.set(ctx.sessionManager.getSessionId(), about.mode);
				register(about);
				await startSession(ctx);
				toldLost = false;
			},
			refused: (why) => say(ctx, `contextd: ${why}`, "error"),
			lost: (why, daemon) => {
				if (!toldLost && !replaced) say(ctx, lostText(why, daemon), "warning");
				toldLost = true;
			},
		});
		return link;
	}

	/** One event of this session and its answer. A daemon that dies over it is asked once more, started anew. */
	async function ask<M extends SessionMethod>(method: M, ctx: ExtensionContext, params: Params<M>, deadlineMs?: number): Promise<Replies[M]> {
		const sessions = ctx.sessionManager;
		const sessionId = sessions.getSessionId();
		const event = { ...params, sessionId, leafId: sessions.getLeafId() } as Methods[M] & { again?: boolean };
		const daemon = linkFor(ctx);
		for (let attempt = 1; ; attempt++) {
			try {
				const reply = await daemon.request(method, event, deadlineMs);
				const need = (reply as Replies["session_start"]).need;
				if (!need) return reply;
				const known = sessions.getEntries();
				const after = need.after === null ? -1 : known.findLastIndex((entry) => entry.id === need.after);
				daemon.notify("entries", { sessionId, entries: known.slice(after + 1) as unknown as Methods["entries"]["entries"] });
				return await daemon.request(method, { ...event, again: true }, deadlineMs);
			} catch (error) {
				if (!(error instanceof DaemonGone) || attempt > 1 || replaced) throw error;
			}
		}
	}

	/** Perform effects; when one throws, the daemon says what to do instead. Returns why, for a tool's result. */
	async function run(effects: readonly Effect[] | undefined, ctx: ExtensionContext, settled?: number): Promise<string | undefined> {
		const stage = stageOf(ctx, settled);
		const first = await perform(effects ?? [], stage);
		let failure = first;
		for (let left = ANSWERS_TO_FAILURE; failure && left > 0; left--) {
			const { effect, error } = failure;
			try {
				const instead = await ask("effect_failed", ctx, failure);
				failure = await perform(instead.effects ?? [], stage);
			} catch (thrown) {
				failure = { effect, error: `${error} (${messageOf(thrown)})` };
				break;
			}
		}
		if (failure && !replaced) {
			say(ctx, `contextd: ${failure.effect} failed: ${failure.error}`, "error");
			letGo(ctx);
		}
		return first?.error;
	}

	/** Nobody is left to say what becomes of held input, so it goes to work. */
	function letGo(ctx: ExtensionContext): void {
		if (!replaced && slot.holding) sendHeld(pi, slot, release(slot), !ctx.isIdle());
	}

	function stageOf(ctx: ExtensionContext, settled: number | undefined): Stage {
		return {
			pi,
			ctx,
			slot,
			settled,
			replaced: () => replaced,
			command: () => {
				if (!command) throw new Error("Pi has given no command context");
				return command;
			},
			commanded: (name, args) => runCommand(name, args, ctx),
			navigated: async (report) => {
				const reply = await ask("navigated", ctx, report);
				await run(reply.effects, ctx, settled);
			},
		};
	}

	/** An event whose answer is only effects. Without a daemon Pi goes on as if we were not there. */
	async function forward<M extends SessionMethod>(method: M, ctx: ExtensionContext, params: Params<M>, settled?: number): Promise<Replies[M] | undefined> {
		try {
			const reply = await ask(method, ctx, params);
			await run((reply as Replies["session_start"]).effects, ctx, settled);
			return reply;
		} catch (error) {
			if (!replaced && error instanceof Refused) say(ctx, `contextd: ${error.message}`, "error");
			return undefined;
		}
	}

	// Starting

	async function startSession(ctx: ExtensionContext): Promise<void> {
		const file = ctx.sessionManager.getSessionFile();
		const params = {
			reason,
			file: file ?? null,
			inFlight: slot.inFlight ?? null,
			holding: slot.holding,
			held: slot.held.length,
		};
		const reply = await ask("session_start", ctx, params, startDeadline(sizeOf(file)));
		reason = "resync";
		await run(reply.effects, ctx);
	}

	function register(about: Initialized): void {
		for (const tool of about.tools) {
			pi.registerTool({
				name: tool.name,
				label: tool.label,
				description: tool.description,
				// A plain JSON schema does as well as a TypeBox one (facts: pi-lifecycle 12).
				parameters: tool.parameters as never,
				executionMode: tool.sequential ? "sequential" : "parallel",
				execute: (callId, args, signal, _update, ctx) => callTool(tool.name, callId, args as Record<string, unknown>, signal, ctx),
			});
		}
		for (const { name, description } of about.commands) {
			pi.registerCommand(name, {
				description,
				getArgumentCompletions: (prefix) => complete(name, prefix),
				handler: (args, ctx) => runCommand(name, args, ctx),
			});
		}
		for (const customType of about.renderers) {
			pi.registerMessageRenderer(customType, (message, { expanded }, theme) => {
				const text = typeof message.content === "string" ? message.content : "";
				const box = new Box(1, 0, (line) => theme.bg("customMessageBg", line));
				box.addChild(new Text(theme.fg("customMessageLabel", titleOf(message.details)), 0, 0));
				if (expanded) box.addChild(new Text(theme.fg("dim", text), 0, 0));
				return box;
			});
		}
	}

	async function runCommand(name: string, args: string, ctx: ExtensionContext): Promise<void> {
		await forward("command", ctx, {
			name,
			args,
			captured: command !== undefined,
			idle: ctx.isIdle(),
			editorText: ctx.hasUI ? ctx.ui.getEditorText() : "",
			contextEdit: hasContextEdits(ctx),
			model: modelOf(ctx),
			skills: (command?.getSystemPromptOptions().skills ?? []).map((skill) => skill.filePath),
		});
	}

	async function callTool(
		tool: string,
		callId: string,
		args: Record<string, unknown>,
		signal: AbortSignal | undefined,
		ctx: ExtensionContext,
	): Promise<AgentToolResult<Record<string, unknown>>> {
		const params = { tool, callId, arguments: args, captured: command !== undefined, usage: usageOf(ctx) };
		const answer = ask("tool_execute", ctx, params, tool === "history" ? SEARCH_MS : undefined);
		const sessionId = ctx.sessionManager.getSessionId();
		const reply = await untilAborted(answer, signal, () => link?.notify("cancel", { sessionId, callId }));
		const failure = await run(reply.effects, ctx);
		if (reply.isError || failure !== undefined) throw new Error(failure ?? reply.text);
		return { content: [{ type: "text", text: reply.text ?? "" }], details: reply.details ?? {} };
	}

	async function complete(name: string, prefix: string) {
		try {
			const { items } = (await link?.request("complete", { name, prefix })) ?? { items: [] };
			return items.map(({ value, description }) => ({ value, label: value, description }));
		} catch {
			return null;
		}
	}

	// Pi's events

	pi.registerCommand(CAPTURE_COMMAND, {
		description: "Internal: gives contextd the context that can navigate the session tree",
		handler: async (_args, ctx) => {
			command = ctx;
		},
	});

	pi.on("session_start", async (event, ctx) => {
		mendAppends(ctx);
		reason = event.reason;
		slot.navigated = stageOf(ctx, undefined).navigated;
		try {
			// A daemon that is there already has to be told; a new one is told by `attached`.
			if (link) await startSession(ctx);
			else await linkFor(ctx).attach();
		} catch (error) {
			if (!replaced && error instanceof Refused) say(ctx, `contextd: ${error.message}`, "error");
		}
	});

	pi.on("session_tree", async (event, ctx) => {
		const entry = event.summaryEntry;
		const summary = entry ? { id: entry.id, fromId: entry.fromId, parentId: entry.parentId } : null;
		await forward("session_tree", ctx, { oldLeafId: event.oldLeafId, summary, inFlight: slot.inFlight ?? null });
	});

	pi.on("agent_settled", async (event, ctx) => {
		const number = ++slot.settled;
		const editorText = ctx.hasUI ? ctx.ui.getEditorText() : "";
		const { id, input } = forgetTaken(slot);
		slot.held.unshift(...input);
		const params = {
			aborted: (event as { aborted?: boolean }).aborted ?? false,
			editorText,
			unwritten: id ?? null,
			swallowed: input.length,
		};
		const handled = forward("agent_settled", ctx, params, number).then((reply) => {
			if (reply) return;
			// What could not be written would only come back if it were sent again.
			if (input.length > 0) backToEditor(ctx, release(slot));
			else letGo(ctx);
		});
		slot.settling.set(number, handled);
		await handled;
		slot.settling.delete(number);
	});

	pi.on("context", async (event, ctx) => {
		const { id } = forgetTaken(slot);
		if (id !== undefined && id === slot.releaseOn) sendHeld(pi, slot, release(slot), true);
		let messages: typeof event.messages | undefined;
		try {
			const reply = await ask("context", ctx, {
				count: event.messages.length,
				outline: outliner.outline(event.messages),
				usage: usageOf(ctx),
			});
			messages = outliner.keep(event.messages, reply.keep as Array<[number, number]> | null | undefined);
			await run(reply.effects, ctx);
		} catch {
			messages = outliner.keepAsBefore(event.messages);
		}
		return messages ? { messages } : undefined;
	});

	pi.on("session_before_compact", async (event, ctx) => {
		const reply = await forward("session_before_compact", ctx, { reason: (event as { reason?: string }).reason ?? "manual" });
		if (reply?.unfold?.length) unfold(event.preparation, reply.unfold, ctx);
		return reply?.cancel ? { cancel: true } : undefined;
	});

	pi.on("input", (event) => {
		// What extensions send is let through, our own releases among it.
		if (!slot.holding || event.source === "extension") return undefined;
		const content = event.images?.length ? [{ type: "text" as const, text: event.text }, ...event.images] : event.text;
		slot.held.push({ content, typed: true });
		return { action: "handled" };
	});

	// Pi 1.6 has more to write before a message that starts a run.
	pi.on("before_agent_start", (event) => {
		takeUp((event as { message?: AgentMessage }).message);
	});

	pi.on("message_end", (event) => takeUp(event.message));

	/** Pi takes a message up before it writes it, and makes no request when it cannot. */
	function takeUp(message: AgentMessage | undefined): void {
		if (message?.role === "user") slot.taken.input.push({ content: message.content, typed: false });
		if (message && slot.releaseOn !== undefined && idOf(message) === slot.releaseOn) slot.taken.id = slot.releaseOn;
	}

	pi.on("turn_start", () => {
		sendHeld(pi, slot, slot.queued.splice(0), true);
	});

	pi.on("session_shutdown", (event, ctx) => {
		replaced = true;
		// No run of this instance takes it any more; the next one asks what becomes of it.
		slot.held.unshift(...slot.queued.splice(0));
		if (event.reason !== "reload") slot.inFlight = undefined;
		link?.notify("session_shutdown", { sessionId: ctx.sessionManager.getSessionId(), reason: event.reason });
		link?.close();
	});
}

function usageOf(ctx: ExtensionContext): Methods["context"]["usage"] {
	const usage = ctx.getContextUsage();
	return usage ? { tokens: usage.tokens, contextWindow: usage.contextWindow } : null;
}

function modelOf(ctx: ExtensionContext): Methods["command"]["model"] {
	const model = ctx.model;
	if (!model) return null;
	const { input, cacheRead, cacheWrite } = model.cost;
	// Pi asks these models' provider to drop reasoning that an edit has unbound (facts: shake-and-peers 0.3).
	const bindsThinking = (model.compat as { supportsMidConvoEffort?: boolean } | undefined)?.supportsMidConvoEffort ?? false;
	return { id: model.id, input, cacheRead, cacheWrite, bindsThinking };
}

/** The waiting ends with Pi's abort; the answer, should it come, is thrown away. */
function untilAborted<T>(answer: Promise<T>, signal: AbortSignal | undefined, aborted: () => void): Promise<T> {
	if (!signal) return answer;
	return new Promise((resolve, reject) => {
		const abort = () => {
			aborted();
			reject(new Error("Operation aborted"));
		};
		if (signal.aborted) abort();
		signal.addEventListener("abort", abort, { once: true });
		answer.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
	});
}

function sizeOf(file: string | undefined): number {
	try {
		return file === undefined ? 0 : statSync(file).size;
	} catch {
		return 0;
	}
}

function titleOf(details: unknown): string {
	const window = (details as { contextManagement?: { windowNumber?: unknown } } | undefined)?.contextManagement?.windowNumber;
	return `context window ${typeof window === "number" ? window : "?"}`;
}

function lostText(why: string, daemon: string): string {
	return (
		`contextd: no answer from the daemon: ${why}. Pi goes on; context windows wait until it is back. ` +
		`It was started as "${daemon}": install it with pip install pi-contextd, or name it in PI_CONTEXTD_COMMAND.`
	);
}
