/** A request's messages as the few facts that matter to the projection; their content stays in Pi. */
import { createHash } from "node:crypto";
import type { ContextEvent } from "@earendil-works/pi-coding-agent";
import type { Context } from "./protocol.d.ts";

type Messages = ContextEvent["messages"];
type Outline = NonNullable<Context["outline"]>;

const OURS = "codex-context-";
const HASH_LENGTH = 16;

export class Outliner {
	/** A summary never changes, so its text is hashed once. */
	private readonly hashes = new Map<string, string>();
	private hidden = new Set<string>();
	/** The message of ours with which the last request began, when something before it was left out. */
	private cut: string | undefined;

	outline(messages: Messages): Outline {
		const outline: Outline = [];
		for (const [at, message] of messages.entries()) {
			if (message.role === "branchSummary") {
				const { role, fromId, timestamp } = message;
				outline.push({ at, role, fromId, timestamp, hash: this.hash(fromId, timestamp, message.summary) });
			} else if (message.role === "custom" && message.customType.startsWith(OURS)) {
				outline.push({ at, role: message.role, customType: message.customType, id: idOf(message) ?? null });
			}
		}
		return outline;
	}

	/** Keep these ranges, and remember what that hides. */
	keep(messages: Messages, ranges: ReadonlyArray<readonly [number, number]> | null | undefined): Messages | undefined {
		const kept = ranges?.flatMap(([from, to]) => messages.slice(from, to));
		this.cut = kept?.[0] && idOf(kept[0]);
		const visible = new Set(kept ?? messages);
		this.hidden = new Set(messages.flatMap((message) => (visible.has(message) ? [] : [keyOf(message)])));
		return kept;
	}

	/** Without an answer: hide what the last answer hid. */
	keepAsBefore(messages: Messages): Messages | undefined {
		const from = this.cut === undefined ? 0 : messages.findIndex((message) => idOf(message) === this.cut);
		const kept = messages.slice(Math.max(0, from)).filter((message) => message.role !== "branchSummary" || !this.hidden.has(keyOf(message)));
		return kept.length < messages.length ? kept : undefined;
	}

	private hash(fromId: string | null, timestamp: number, summary: string): string {
		const key = `${fromId}|${timestamp}|${summary.length}`;
		const known = this.hashes.get(key);
		if (known !== undefined) return known;
		const made = createHash("sha256").update(summary, "utf8").digest("hex").slice(0, HASH_LENGTH);
		this.hashes.set(key, made);
		return made;
	}
}

function keyOf(message: Messages[number]): string {
	return message.role === "branchSummary" ? `${message.fromId}|${message.timestamp}` : "";
}

/** The `details.id` by which a custom message is told. */
export function idOf(message: Messages[number]): string | undefined {
	if (message.role !== "custom") return undefined;
	const id = (message.details as { id?: unknown } | undefined)?.id;
	return typeof id === "string" ? id : undefined;
}
