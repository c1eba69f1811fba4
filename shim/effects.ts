/**
 * Performs effects, in order, each as one call of Pi's extension API. Decides nothing: a line that does belongs
 * into the daemon.
 */
import {
	type ExtensionAPI,
	type ExtensionCommandContext,
	type ExtensionContext,
	type SessionBeforeCompactEvent,
	sessionEntryToContextMessages,
} from "@earendil-works/pi-coding-agent";
import type { Reply } from "./protocol.d.ts";
import { type Held, imagesIn, type NavigationReport, type Slot, type Taken, textOf } from "./slot.ts";

export const CAPTURE_COMMAND = "contextd-capture";

const STATUS_KEY = "contextd";

export type Effect = NonNullable<Reply["effects"]>[number];

/** What an interpreter may use. */
export interface Stage {
	pi: ExtensionAPI;
	ctx: ExtensionContext;
	slot: Slot;
	/** The captured context, the only one that can navigate. */
	command(): ExtensionCommandContext;
	/** This extension instance was replaced; its context is stale. */
	replaced(): boolean;
	/** The number of the settled handler that these effects belong to, if they do. */
	settled: number | undefined;
	/** Run a command of ours as if the user had typed it. */
	commanded(name: string, args: string): Promise<void>;
	/** Report what came of a navigation, and perform what follows from it. */
	navigated(report: NavigationReport): Promise<void>;
}

/** Pi's session manager as it is at run time, beyond its read-only type (facts: pi-lifecycle 11). */
interface WritableSession {
	/** Pi 0.87 and newer. */
	appendContextEdit?(targetId: string, replacement: { content: unknown }): string;
	appendThinkingLevelChange(level: string): string;
	appendModelChange(provider: string, modelId: string): string;
}

type Interpreters = {
	[Name in Effect["do"]]: (effect: Extract<Effect, { do: Name }>, stage: Stage) => void | Promise<void>;
};

const INTERPRETERS: Interpreters = {
	capture: (_, { pi }) => pi.sendUserMessage(`/${CAPTURE_COMMAND}`, { expandPromptTemplates: true }),
	append_entry: (effect, { pi }) => pi.appendEntry(effect.customType, effect.data),
	append_message: (effect, { pi, slot }) => {
		if (effect.releaseAfter) slot.releaseOn = effect.releaseAfter;
		const { customType, content, details } = effect;
		const message = { customType, content, display: true, details };
		pi.sendMessage(message, effect.steer ? { deliverAs: "steer" } : { triggerTurn: effect.startTurn ?? false });
	},
	expect_leaf: (effect, { ctx }) => {
		if (ctx.sessionManager.getLeafId() !== effect.leafId || !ctx.isIdle()) throw new Error("the session went on meanwhile");
	},
	append_context_edit: (effect, { ctx }) => {
		const session = writable(ctx);
		if (!session.appendContextEdit) throw new Error("this Pi has no context edits");
		session.appendContextEdit(effect.targetId, effect.replacement as { content: unknown });
	},
	choose: async (effect, stage) => {
		const chosen = await stage.ctx.ui.select(effect.title, Object.keys(effect.options));
		const args = chosen === undefined ? undefined : effect.options[chosen];
		if (args !== undefined) await stage.commanded(effect.command, args);
	},
	append_thinking_level: (effect, { ctx }) => {
		writable(ctx).appendThinkingLevelChange(effect.level);
	},
	append_model: (effect, { ctx }) => {
		writable(ctx).appendModelChange(effect.provider, effect.modelId);
	},
	navigate: async (effect, stage) => {
		const oldLeafId = stage.ctx.sessionManager.getLeafId();
		if (effect.intentId) stage.slot.inFlight = { intentId: effect.intentId, blankEditor: effect.blankEditor ?? false };
		if (effect.status) stage.ctx.ui.setStatus(STATUS_KEY, effect.status);
		let cancelled = false;
		let error: string | null = null;
		try {
			({ cancelled } = await stage.command().navigateTree(effect.targetId, { summarize: effect.summarize ?? false }));
		} catch (thrown) {
			error = messageOf(thrown);
		}
		const report = { intentId: effect.intentId ?? null, oldLeafId, cancelled, error };
		if (stage.replaced()) {
			// After /reload the successor reports; after /new, resume and fork nothing is in flight any more.
			if (effect.intentId && stage.slot.inFlight?.intentId === effect.intentId) await stage.slot.navigated?.(report);
			return;
		}
		if (effect.status) stage.ctx.ui.setStatus(STATUS_KEY, undefined);
		await stage.navigated(report);
	},
	abort: (_, { ctx }) => ctx.abort(),
	hold_input: (_, { slot }) => {
		slot.holding = true;
	},
	release_input: (effect, { pi, ctx, slot }) => {
		const held = release(slot);
		if (effect.to === "editor") backToEditor(ctx, held);
		else sendHeld(pi, slot, held, !ctx.isIdle());
	},
	resend: (effect, { ctx, slot }) => {
		const entries = effect.entryIds.map((id) => ctx.sessionManager.getEntry(id));
		const messages = entries.flatMap((entry) => (entry?.type === "message" && entry.message.role === "user" ? [entry.message] : []));
		slot.held.unshift(...messages.map(({ content }): Held => ({ content, typed: false })));
	},
	await_idle: async (_, stage) => {
		// One waitForIdle covers one rollover; later ones run in settled handlers of their own (facts: pi-lifecycle 21).
		for (;;) {
			await new Promise((resolve) => setImmediate(resolve));
			await stage.command().waitForIdle();
			const later = [...stage.slot.settling].filter(([number]) => number > (stage.settled ?? 0));
			if (later.length === 0) return;
			await Promise.all(later.map(([, done]) => done));
		}
	},
	set_editor: (effect, { ctx }) => {
		if (ctx.hasUI && ctx.ui.getEditorText() === effect.ifText) ctx.ui.setEditorText(effect.text);
	},
	notify: (effect, { ctx }) => say(ctx, effect.text, effect.level ?? "info"),
	emit: (effect, { pi }) => pi.events.emit(effect.channel, effect.data),
};

/** Performs effects, in order, until one throws; returns that one and why. A replaced instance stops quietly. */
export async function perform(effects: readonly Effect[], stage: Stage): Promise<{ effect: string; error: string } | undefined> {
	for (const effect of effects) {
		if (stage.replaced()) return undefined;
		try {
			const interpret = INTERPRETERS[effect.do] as (effect: Effect, stage: Stage) => void | Promise<void>;
			await interpret(effect, stage);
		} catch (thrown) {
			if (stage.replaced()) return undefined;
			return { effect: effect.do, error: messageOf(thrown) };
		}
	}
	return undefined;
}

/** Stop holding, and take what was held. */
export function release(slot: Slot): Held[] {
	slot.holding = false;
	slot.releaseOn = undefined;
	slot.inFlight = undefined;
	return slot.held.splice(0);
}

/** What Pi had taken up, for which a request has come or never will. */
export function forgetTaken(slot: Slot): Taken {
	const { taken } = slot;
	slot.taken = { id: undefined, input: [] };
	return taken;
}

/** Send in order. While nothing runs only the first may go; the rest follow when its run has begun. */
export function sendHeld(pi: ExtensionAPI, slot: Slot, held: Held[], running: boolean): void {
	const [first, ...rest] = held;
	if (running) {
		for (const one of held) send(pi, one, true);
	} else if (first) {
		slot.queued.push(...rest);
		send(pi, first, false);
	}
}

function send(pi: ExtensionAPI, held: Held, running: boolean): void {
	pi.sendUserMessage(held.content, { ...(running && { deliverAs: "followUp" }), expandPromptTemplates: held.typed });
}

export function backToEditor(ctx: ExtensionContext, held: Held[]): void {
	if (held.length === 0 || !ctx.hasUI) return;
	const texts = [ctx.ui.getEditorText(), ...held.map((one) => textOf(one.content))];
	ctx.ui.setEditorText(texts.filter((text) => text.trim() !== "").join("\n\n"));
	const images = held.reduce((sum, one) => sum + imagesIn(one.content), 0);
	if (images > 0) say(ctx, `contextd: what you sent is back in the editor, which holds no images; attach ${images} again`, "warning");
}

/** One line to the user, on stderr where there is no other place. */
export function say(ctx: ExtensionContext, text: string, level: "info" | "warning" | "error"): void {
	if (ctx.hasUI) ctx.ui.notify(text, level);
	else console.error(text);
}

export function messageOf(thrown: unknown): string {
	return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Whether this Pi can record folds. */
export function hasContextEdits(ctx: ExtensionContext): boolean {
	return typeof writable(ctx).appendContextEdit === "function";
}

type Preparation = SessionBeforeCompactEvent["preparation"];

/** Let Pi summarise these entries in full: it goes on with this very object (facts: shake-and-peers 0.6). */
export function unfold(preparation: Preparation, entryIds: readonly string[], ctx: ExtensionContext): void {
	const originals = entryIds.flatMap((id) => {
		const entry = ctx.sessionManager.getEntry(id);
		return entry ? sessionEntryToContextMessages(entry) : [];
	});
	for (const messages of [preparation.messagesToSummarize, preparation.turnPrefixMessages]) {
		for (const [at, message] of messages.entries()) {
			const original = originals.find((one) => sameMessage(one, message));
			if (original) messages[at] = original;
		}
	}
}

function sameMessage(one: Preparation["messagesToSummarize"][number], other: typeof one): boolean {
	if (one.role !== other.role || one.timestamp !== other.timestamp) return false;
	return one.role !== "toolResult" || other.role !== "toolResult" || one.toolCallId === other.toolCallId;
}

function writable(ctx: ExtensionContext): WritableSession {
	return ctx.sessionManager as unknown as WritableSession;
}
