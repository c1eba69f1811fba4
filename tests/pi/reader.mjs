// What Pi itself makes of session files: `node reader.mjs SESSION_MANAGER LIST`, one line of JSON for each file that LIST
// names. Pi rewrites some files when it opens them, so these have to be copies.
import { readFileSync } from "node:fs";
import { dirname } from "node:path";

const [modulePath, listPath] = process.argv.slice(2);
const { SessionManager } = await import(modulePath);

const wellFormed = (value) => (typeof value === "string" ? value.toWellFormed() : value);

/** Whether the walk from this entry comes back to itself; Pi's own would never end. */
function isCycle(manager, id) {
	const seen = new Set();
	for (let at = id; at && manager.byId.has(at); at = manager.byId.get(at).parentId) {
		if (seen.has(at)) return true;
		seen.add(at);
	}
	return false;
}

/** Pi's getTree walks each copy of an entry anew and never leaves a cycle; then the rule alone is applied. */
function rootsOf(manager, entries) {
	const isRoot = ({ id, parentId }) => parentId === null || parentId === id || !manager.byId.has(parentId);
	const odd = manager.byId.size < entries.length || entries.some((entry) => isCycle(manager, entry.id));
	if (odd) return { asked: false, roots: [...manager.byId.values()].filter(isRoot).map((entry) => entry.id) };
	return { asked: true, roots: manager.getTree().map((node) => node.entry.id) };
}

function read(path) {
	let manager;
	try {
		manager = SessionManager.open(path, dirname(path), "/");
	} catch (error) {
		return { refused: String(error.message).split(":")[0] };
	}
	const leaf = manager.getLeafId();
	const entries = manager.getEntries();
	const endless = Boolean(leaf) && isCycle(manager, leaf);
	const { asked, roots } = rootsOf(manager, entries);
	const position = new Map(entries.map((entry, at) => [entry.id, at]));
	return {
		count: manager.getEntryCount(),
		order: entries.map((entry) => wellFormed(entry.id)),
		facets: [...manager.byId].map(([id, entry]) => [
			wellFormed(id),
			wellFormed(entry.type),
			wellFormed(entry.message?.role ?? entry.customType),
			// Only what names another entry counts: a compaction's, as the position that it has in the file.
			entry.type === "compaction" ? (position.get(entry.firstKeptEntryId) ?? null) : null,
		]),
		leaf: wellFormed(leaf),
		endless,
		branch: endless ? [] : manager.getBranch().map((entry) => wellFormed(entry.id)),
		asked,
		roots: roots.map(wellFormed),
	};
}

for (const path of readFileSync(listPath, "utf8").split("\n").filter(Boolean)) {
	process.stdout.write(`${JSON.stringify(read(path))}\n`);
}
