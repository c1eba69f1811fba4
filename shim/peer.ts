/**
 * One daemon process and JSON-RPC 2.0 with it, one object a line. Knows nothing of Pi and nothing of sessions.
 * Every request has a deadline; a daemon that misses one counts as dead and is ended.
 */
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import type { Lines, Methods, Replies } from "./protocol.d.ts";

const LF = 10;
const STDERR_KEPT = 2_000;
const END_GRACE_MS = 1_000;

/** The daemon died, hung or could not be started; `message` is for a person. */
export class DaemonGone extends Error {}

/** The daemon refused a request and is well. */
export class Refused extends Error {
	constructor(
		readonly code: number,
		message: string,
	) {
		super(message);
	}
}

interface Line {
	id?: number;
	method?: string;
	params?: unknown;
	result?: unknown;
	error?: { code: number; message: string };
}

interface Pending {
	resolve(value: unknown): void;
	reject(error: Error): void;
	timer: NodeJS.Timeout;
}

export class Peer {
	/** Why it cannot be asked any more. */
	gone: DaemonGone | undefined;
	private readonly child: ChildProcessWithoutNullStreams;
	private readonly pending = new Map<number, Pending>();
	private readonly ready: Promise<Lines["Ready"]>;
	private announce!: (ready: Lines["Ready"]) => void;
	private parts: Buffer[] = [];
	private stderr = "";
	private lastId = 0;

	constructor(command: readonly string[], cwd: string, env: NodeJS.ProcessEnv) {
		this.ready = new Promise((resolve) => {
			this.announce = resolve;
		});
		const [file = "", ...args] = command;
		this.child = spawn(file, args, { cwd, env, stdio: "pipe" });
		this.child.stdout.on("data", (chunk: Buffer) => this.receive(chunk));
		this.child.stderr.on("data", (chunk: Buffer) => {
			this.stderr = (this.stderr + chunk.toString()).slice(-STDERR_KEPT);
		});
		// EPIPE only tells what `exit` tells as well.
		this.child.stdin.on("error", () => {});
		this.child.on("error", (error) => this.die(error.message));
		this.child.on("exit", (code, signal) => this.die(this.lastWords(code, signal)));
	}

	get alive(): boolean {
		return this.gone === undefined;
	}

	/** Resolves once the daemon can be asked; rejects when it dies or the deadline passes first. */
	whenReady(deadlineMs: number): Promise<Lines["Ready"]> {
		return this.within(deadlineMs, "start", (pending) => {
			this.ready.then(pending.resolve);
			return 0;
		}) as Promise<Lines["Ready"]>;
	}

	request<M extends keyof Replies & keyof Methods>(
		method: M,
		params: Methods[M],
		deadlineMs: number,
	): Promise<Replies[M]> {
		return this.within(deadlineMs, method, () => {
			const id = ++this.lastId;
			this.write({ jsonrpc: "2.0", id, method, params });
			return id;
		}) as Promise<Replies[M]>;
	}

	notify<M extends keyof Methods>(method: M, params: Methods[M]): void {
		if (this.alive) this.write({ jsonrpc: "2.0", method, params });
	}

	/** Close its stdin, which ends it; a daemon that does not end is killed. */
	end(): void {
		if (!this.alive) return;
		this.child.stdin.end();
		setTimeout(() => this.child.kill("SIGKILL"), END_GRACE_MS).unref();
	}

	/** End it now: it is of no use any more. */
	kill(why: string): void {
		this.die(why);
		this.child.kill("SIGKILL");
	}

	private within(deadlineMs: number, what: string, start: (pending: Pending) => number): Promise<unknown> {
		if (this.gone) return Promise.reject(this.gone);
		return new Promise((resolve, reject) => {
			const timer = setTimeout(() => this.kill(`it did not answer ${what} within ${deadlineMs} ms`), deadlineMs);
			const settle = <T>(done: (value: T) => void) => (value: T) => {
				clearTimeout(timer);
				this.pending.delete(id);
				done(value);
			};
			const pending: Pending = { resolve: settle(resolve), reject: settle(reject), timer };
			const id = start(pending);
			this.pending.set(id, pending);
		});
	}

	private write(line: object): void {
		this.child.stdin.write(`${JSON.stringify(line)}\n`);
	}

	private receive(chunk: Buffer): void {
		let start = 0;
		for (let end = chunk.indexOf(LF); end >= 0; end = chunk.indexOf(LF, start)) {
			this.parts.push(chunk.subarray(start, end));
			this.accept(Buffer.concat(this.parts).toString());
			this.parts = [];
			start = end + 1;
		}
		if (start < chunk.length) this.parts.push(chunk.subarray(start));
	}

	private accept(text: string): void {
		let line: Line | null;
		try {
			line = JSON.parse(text);
		} catch {
			line = null;
		}
		if (typeof line !== "object" || line === null) return this.kill("it does not speak the protocol");
		if (line.method === "ready") this.announce(line.params as Lines["Ready"]);
		const pending = line.id === undefined ? undefined : this.pending.get(line.id);
		if (line.error) pending?.reject(new Refused(line.error.code, line.error.message));
		else pending?.resolve(line.result);
	}

	private lastWords(code: number | null, signal: NodeJS.Signals | null): string {
		const last = this.stderr.trim().split("\n").at(-1) ?? "";
		return `it ended ${signal ? `by ${signal}` : `with code ${code}`}${last ? `: ${last}` : ""}`;
	}

	private die(why: string): void {
		if (this.gone) return;
		this.gone = new DaemonGone(why);
		for (const pending of [...this.pending.values()]) pending.reject(this.gone);
	}
}
