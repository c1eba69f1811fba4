/**
 * Keeps a daemon at hand: starts it, notices its death, starts another with growing pauses and tells it where
 * the session stands. What is said and done with the answers is for `index.ts`.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { DaemonGone, Peer, Refused } from "./peer.ts";
import type { Initialize, Initialized, Methods, Replies } from "./protocol.d.ts";

export const PROTOCOL = 1;

/** What a user may wait for, in ms. A prompt, an abort and `/new` answer within 2 s whatever the daemon does. */
const READY_MS = 3_000;
const INITIALIZE_MS = 2_000;
const ANSWER_MS = 800;
/** Reads the whole session file: see `startDeadline`. */
const START_MS = 2_000;
/** A search reads archives of any size; Pi's abort ends the waiting. */
export const SEARCH_MS = 120_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;
/** A slow disk still reads this much in a millisecond. */
const BYTES_A_MS = 20_000;

export function startDeadline(fileSize: number): number {
	return START_MS + fileSize / BYTES_A_MS;
}

/** The user's environment first, then the user's settings, then PATH; never a project's files (design 7). */
export function daemonCommand(env: NodeJS.ProcessEnv, agentDir: string): string[] {
	const told = env.PI_CONTEXTD_COMMAND ?? fromSettings(join(agentDir, "settings.json"));
	if (Array.isArray(told)) return told.map(String);
	if (typeof told !== "string" || told === "") return ["pi-contextd"];
	return told.startsWith("[") ? (JSON.parse(told) as string[]) : [told];
}

function fromSettings(file: string): unknown {
	try {
		return JSON.parse(readFileSync(file, "utf8"))?.contextd?.command;
	} catch {
		return undefined;
	}
}

export interface LinkHooks {
	/** How to introduce ourselves. */
	initialize(): Initialize;
	/** A daemon is there for the first time or again: tell it about the session. */
	attached(about: Initialized): Promise<void>;
	/** The daemon is well and will not serve us: another version, a wrong setting. There is no use in asking again. */
	refused(why: string): void;
	/** The daemon is gone, or cannot be started; said once for each death. */
	lost(why: string, command: string): void;
}

export class Link {
	private peer: Peer | undefined;
	private starting: Promise<Peer> | undefined;
	private readonly dead = new WeakSet<Peer>();
	private pause = 0;
	private notBefore = 0;
	private closed = false;

	constructor(
		private readonly command: readonly string[],
		private readonly cwd: string,
		private readonly hooks: LinkHooks,
	) {}

	/** Ask the daemon, starting one if need be. Throws `DaemonGone` or `Refused`. */
	async request<M extends keyof Replies & keyof Methods>(
		method: M,
		params: Methods[M],
		deadlineMs = ANSWER_MS,
	): Promise<Replies[M]> {
		const peer = await this.attach();
		try {
			const answer = await peer.request(method, params, deadlineMs);
			this.pause = 0;
			return answer;
		} catch (error) {
			if (error instanceof DaemonGone) this.lose(peer, error);
			throw error;
		}
	}

	notify<M extends keyof Methods>(method: M, params: Methods[M]): void {
		this.peer?.notify(method, params);
	}

	/** End the daemon for good. */
	close(): void {
		this.closed = true;
		this.peer?.end();
		this.peer = undefined;
	}

	/** The daemon that is there, or a new one that knows the session. */
	async attach(): Promise<Peer> {
		// One that died while nobody was asking is missed only now.
		if (this.peer?.gone) this.lose(this.peer, this.peer.gone);
		if (this.peer) return this.peer;
		if (this.closed) throw new DaemonGone("the session is over");
		if (this.starting) return this.starting;
		if (Date.now() < this.notBefore) throw new DaemonGone("it was just lost and will be started again");
		this.starting = this.start();
		try {
			return await this.starting;
		} finally {
			this.starting = undefined;
		}
	}

	private async start(): Promise<Peer> {
		const peer = new Peer(this.command, this.cwd, process.env);
		try {
			await peer.whenReady(READY_MS);
			const about = await peer.request("initialize", this.hooks.initialize(), INITIALIZE_MS);
			// From here on `attached` and the effects that it performs can ask this daemon.
			this.peer = peer;
			await this.hooks.attached(about);
			return peer;
		} catch (error) {
			peer.kill("it could not be started");
			if (error instanceof Refused) {
				this.closed = true;
				this.hooks.refused(error.message);
			} else {
				this.lose(peer, error as Error);
			}
			throw error instanceof DaemonGone ? error : new DaemonGone((error as Error).message);
		}
	}

	private lose(peer: Peer, error: Error): void {
		if (this.dead.has(peer)) return;
		this.dead.add(peer);
		if (this.peer === peer) this.peer = undefined;
		this.notBefore = Date.now() + this.pause;
		this.pause = Math.min(LONGEST_PAUSE_MS, Math.max(FIRST_PAUSE_MS, this.pause * 2));
		if (!this.closed) this.hooks.lost(error.message, this.command.join(" "));
	}
}
