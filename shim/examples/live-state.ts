/**
 * Live state beside context windows: a counter that lives in memory alone, as a shell or a notebook would.
 *
 * contextd tells on Pi's extension bus, channel "contextd:tree", what a move in the session tree was:
 *   { internal: true, windowId, previousWindowId }   a new context window began: what runs goes on
 *   { internal: false, windowId, previousWindowId }  the user went elsewhere: what hangs on the branch starts anew
 *
 * Try it: let the model call `count`, then new_context, then `count` again, and it counts on. Leave with /tree, and it
 * starts at 1.
 */
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

interface Move {
	internal: boolean;
	windowId: string | null;
	previousWindowId: string | null;
}

export default function liveState(pi: ExtensionAPI): void {
	let count = 0;

	pi.events.on("contextd:tree", (data) => {
		if (!(data as Move).internal) count = 0;
	});

	pi.registerTool({
		name: "count",
		label: "Count",
		description: "Count one up and tell the count",
		// A plain JSON schema does as well as a TypeBox one.
		parameters: { type: "object", properties: {} } as never,
		execute: async () => ({ content: [{ type: "text", text: `The count is ${++count}.` }], details: { count } }),
	});

	pi.registerCommand("count", {
		description: "Tell the count",
		handler: async (_args, ctx) => ctx.ui.notify(`The count is ${count}.`, "info"),
	});
}
