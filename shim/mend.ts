/**
 * A defect of older versions of Pi that would cost a session: an entry that could not be written stays the leaf in memory.
 * What follows hangs from it, so that the file, opened again, ends there for good. Pi 1.6 takes such an entry back itself.
 */
import type { ExtensionContext } from "@earendil-works/pi-coding-agent";

/** The parts of Pi's session manager at run time that take part in an append. */
interface Appender {
	_appendEntry(entry: { id: string }): void;
	fileEntries: Array<{ id?: string }>;
	byId: Map<string, unknown>;
	leafId: string | null;
}

const MENDED = Symbol.for("pi-contextd.mended");

/** From now on an append that throws has not happened. */
export function mendAppends(ctx: ExtensionContext): void {
	const session = ctx.sessionManager as unknown as Appender & { [MENDED]?: boolean };
	const known = typeof session._appendEntry === "function" && Array.isArray(session.fileEntries) && session.byId instanceof Map;
	if (!known || session[MENDED]) return;
	session[MENDED] = true;
	const append = session._appendEntry.bind(session);
	session._appendEntry = (entry) => {
		const { leafId } = session;
		try {
			append(entry);
		} catch (thrown) {
			if (session.fileEntries.at(-1)?.id === entry.id) {
				session.fileEntries.pop();
				session.byId.delete(entry.id);
				session.leafId = leafId;
			}
			throw thrown;
		}
	};
}
