/**
 * What must outlive an extension instance: `/reload`, `/new`, resume and fork replace the instance while a
 * rollover may be under way, and nothing that a user typed may go with it. One slot a process.
 */
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import type { InFlight, Methods } from "./protocol.d.ts";

type Content = Parameters<ExtensionAPI["sendUserMessage"]>[0];

/** What came of a navigation. */
export type NavigationReport = Pick<Methods["navigated"], "intentId" | "oldLeafId" | "cancelled" | "error">;

/** What is to be sent. Typed text may hold a template; what comes from the session was expanded already. */
export interface Held {
	content: Content;
	typed: boolean;
}

/** The `details.id` of a custom message, and user messages in their order. */
export interface Taken {
	id: string | undefined;
	input: Held[];
}

export interface Slot {
	/** Input is kept instead of being sent. */
	holding: boolean;
	held: Held[];
	/** The `details.id` of the message whose first request frees what is held: then it stands in the session. */
	releaseOn: string | undefined;
	/** What Pi has taken up for a request that has not come yet. It never does where Pi cannot write what it took up. */
	taken: Taken;
	/** What waits for a run to begin, since two messages sent while idle race (facts: pi-lifecycle 19). */
	queued: Held[];
	/** This process is navigating. */
	inFlight: InFlight | undefined;
	/** How the instance that is in charge now reports a navigation, also one that its predecessor began. */
	navigated: ((report: NavigationReport) => Promise<void>) | undefined;
	/** Settled handlers that run, by the order in which they began. */
	settling: Map<number, Promise<void>>;
	settled: number;
	/** The mode that each session of this process began with; it stays (design 5). */
	modes: Map<string, string>;
}

const KEY = Symbol.for("pi-contextd.slot");

export function slot(): Slot {
	const shelf = globalThis as { [KEY]?: Slot };
	shelf[KEY] ??= {
		holding: false,
		held: [],
		releaseOn: undefined,
		taken: { id: undefined, input: [] },
		queued: [],
		inFlight: undefined,
		navigated: undefined,
		settling: new Map(),
		settled: 0,
		modes: new Map(),
	};
	return shelf[KEY];
}

export function textOf(content: Content): string {
	if (typeof content === "string") return content;
	return content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
}

export function imagesIn(content: Content): number {
	return typeof content === "string" ? 0 : content.filter((block) => block.type === "image").length;
}
