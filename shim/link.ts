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
const ANSWER_MS = 800;
/** How long a request waits for a daemon that is starting; the start itself goes on, for a cold disk is slow. */
const PATIENCE_MS = 1_500;
const READY_MS = 5_000;
const INITIALIZE_MS = 2_000;
/** Reads the whole session file: see `startDeadline`. */
const START_MS = 2_000;
/** A search reads archives of any size; Pi's abort ends the waiting. */
export const SEARCH_MS = 120_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;
/** A daemon that lived this long did not die of its start; the pauses begin anew. */
const STEADY_MS = 10_000;
/** A slow disk still reads this much in a millisecond. */
const BYTES_A_MS = 20_000;

export function startDeadline(fileSize: number): number {
	return START_MS + fileSize / BYTES_A_MS;
}

/** The user's environment first, then the user's settings, then PATH; never a project's files (design 7). */
export function daemonCommand(env: NodeJS.ProcessEnv, agentDir: string): string[] {
	const told = env.PI_CONTEXTD_COMMAND ?? fromSettings(join(agentDir, "settings.json"));
	if (typeof told === "string" && told !== "") return listIn(told) ?? [told];
	return asCommand(told) ?? ["pi-contextd"];
}

/** What is no list is a program's name, and starting it says what is wrong with it. */
function listIn(text: string): string[] | undefined {
	try {
		return asCommand(JSON.parse(text));
	} catch {
		return undefined;
	}
}

function asCommand(told: unknown): string[] | undefined {
	return Array.isArray(told) && told.length > 0 ? told.map(String) : undefined;
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

interface Start {
	peer: Peer;
	since: number;
	/** It answers. */
	initialized: Promise<Initialized>;
	/** It knows the session, and what it wanted done about it has been done. */
	attached: Promise<Peer>;
}

export class Link {
	private peer: Peer | undefined;
	private starting: Start | undefined;
	private attachedAt = 0;
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
			return await peer.request(method, params, deadlineMs);
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
		this.starting?.peer.end();
		this.peer?.end();
		this.peer = undefined;
	}

	/** The daemon that is there, or a new one that knows the session. */
	async attach(): Promise<Peer> {
		// One that died while nobody was asking is missed only now.
		if (this.peer?.gone) this.lose(this.peer, this.peer.gone);
		if (this.peer) return this.peer;
		if (this.closed) throw new DaemonGone("the session is over");
		if (!this.starting && Date.now() < this.notBefore) throw new DaemonGone("it was just lost and will be started again");
		const { since, initialized, attached } = (this.starting ??= this.begin());
		await patiently(initialized, since + PATIENCE_MS - Date.now());
		return attached;
	}

	private begin(): Start {
		const peer = this.spawn();
		const initialized = this.initialize(peer);
		const attached = this.introduce(peer, initialized).finally(() => {
			this.starting = undefined;
		});
		// It may fail when nobody waits for it any more; `lost` has told by then.
		attached.catch(() => {});
		return { peer, since: Date.now(), initialized, attached };
	}

	private spawn(): Peer {
		try {
			return new Peer(this.command, this.cwd, process.env);
		} catch (error) {
			// It would be the same the next time.
			this.closed = true;
			const why = (error as Error).message;
			this.hooks.lost(why, this.command.join(" "));
			throw new DaemonGone(why);
		}
	}

	private async initialize(peer: Peer): Promise<Initialized> {
		await peer.whenReady(READY_MS);
		return peer.request("initialize", this.hooks.initialize(), INITIALIZE_MS);
	}

	private async introduce(peer: Peer, initialized: Promise<Initialized>): Promise<Peer> {
		try {
			const about = await initialized;
			if (this.closed) throw new DaemonGone("the session is over");
			// From here on `attached` and the effects that it performs can ask this daemon.
			this.peer = peer;
			this.attachedAt = Date.now();
			await this.hooks.attached(about);
			return peer;
		} catch (error) {
			peer.kill("it could not be started");
			if (!(error instanceof Refused)) this.lose(peer, error as Error);
			else if (!this.closed) {
				this.closed = true;
				this.hooks.refused(error.message);
			}
			throw error instanceof DaemonGone ? error : new DaemonGone((error as Error).message);
		}
	}

	private lose(peer: Peer, error: Error): void {
		if (this.dead.has(peer)) return;
		this.dead.add(peer);
		const served = this.peer === peer;
		if (served) this.peer = undefined;
		if (served && Date.now() - this.attachedAt >= STEADY_MS) this.pause = 0;
		// One that served is missed at once; one that never did would be the same a moment later.
		if (!served) this.pause = Math.max(FIRST_PAUSE_MS, this.pause);
		this.notBefore = Date.now() + this.pause;
		this.pause = Math.min(LONGEST_PAUSE_MS, Math.max(FIRST_PAUSE_MS, this.pause * 2));
		if (!this.closed) this.hooks.lost(error.message, this.command.join(" "));
	}
}

/** Wait until a start has gone well or badly, and no longer than this; it goes on without us. */
async function patiently(start: Promise<unknown>, ms: number): Promise<void> {
	let timer: NodeJS.Timeout | undefined;
	const late = new Promise<never>((_, reject) => {
		timer = setTimeout(() => reject(new DaemonGone("it is still starting")), Math.max(0, ms));
	});
	try {
		await Promise.race([start.catch(() => {}), late]);
	} finally {
		clearTimeout(timer);
	}
}
