// Strikes at an exact point of what happens between Pi, the shim and the daemon: ends or stops a process there, or lets
// a write fail ("disk"), or all of them until it is "free" again ("full"). Loaded before the shim, so that it sees every event first. What is struck when is for torture.py.
//
//   /strike {"at": [...], "on": ...}  arm one strike; it comes when the occurrences of `at` have come in this order
//   /slot                             show what the shim holds
//   CONTEXTD_TEST_STRIKE              one that is armed when Pi starts
//   CONTEXTD_TEST_STRUCK              the file that gets a line, with what the shim held, when a strike comes
//
// Occurrences: "write TYPE" and "wrote TYPE" (an entry, before and after it is in the file), "event NAME" (of Pi),
// "gate NAME" (of the scripted model, when it is opened), "asked METHOD" (the daemon has the request and will not
// answer), "answered METHOD" (the answer has come and nothing was made of it).
import * as fs from "node:fs";
import * as net from "node:net";

interface Strike {
  at: string[];
  on: "pi" | "daemon" | "hung" | "disk" | "full" | "free";
}

interface Entry {
  type: string;
  customType?: string;
  message?: { role: string };
}

/** The session manager at run time. */
interface Manager {
  _persist: (entry: Entry) => void;
}

interface Context {
  sessionManager: object;
  ui: { notify: (text: string, type?: "info" | "error") => void };
}

interface Pi {
  on: (event: string, handler: (event: unknown, ctx: Context) => unknown) => void;
  registerCommand: (name: string, command: { description: string; handler: (args: string, ctx: Context) => unknown }) => void;
}

/** What is there once a process, also after /reload. */
interface Shared {
  armed: Strike | undefined;
  reached: number;
  full: boolean;
  patched: WeakSet<object>;
}

const WATCHED = ["session_before_tree", "session_tree", "agent_end", "agent_settled", "context", "message_update", "turn_start"];
const FULL = "ENOSPC: no space left on device, write";
const SLOT = Symbol.for("pi-contextd.slot");

const shelf = globalThis as { contextdTestTorture?: Shared; contextdTestAtGate?: (name: string) => void; [SLOT]?: Slot };

interface Slot {
  holding: boolean;
  held: { content: unknown }[];
  queued: { content: unknown }[];
}

const shared = (shelf.contextdTestTorture ??= start());

function start(): Shared {
  const at = process.env.CONTEXTD_TEST_STRIKE;
  watchWire();
  return { armed: at ? (JSON.parse(at) as Strike) : undefined, reached: 0, full: false, patched: new WeakSet() };
}

export default function (pi: Pi): void {
  shelf.contextdTestAtGate = (name) => occurs(`gate ${name}`);

  pi.registerCommand("strike", {
    description: "Arm a strike",
    handler: (args) => {
      shared.armed = JSON.parse(args) as Strike;
      shared.reached = 0;
      if (shared.armed.at.length === 0) strike(shared.armed);
    },
  });

  pi.registerCommand("slot", {
    description: "Show what the shim holds",
    handler: (_args, ctx) => ctx.ui.notify(`slot ${JSON.stringify(slot())}`),
  });

  pi.on("session_start", (_event, ctx) => watchWrites(ctx.sessionManager as Manager));
  for (const event of WATCHED) pi.on(event, () => occurs(`event ${event}`));
}

/** The strike that is due now, if this is the last of its occurrences. */
function due(occurrence: string): Strike | undefined {
  const { armed } = shared;
  if (!armed || armed.at[shared.reached] !== occurrence) return undefined;
  shared.reached += 1;
  if (shared.reached < armed.at.length) return undefined;
  shared.armed = undefined;
  return armed;
}

function occurs(occurrence: string): void {
  const now = due(occurrence);
  if (now) strike(now);
}

function strike({ on }: Strike): void {
  shared.full = on === "full";
  if (on === "free") return;
  record();
  if (on === "pi") process.kill(process.pid, "SIGKILL");
  else if (on === "disk" || on === "full") throw new Error(FULL);
  else for (const pid of daemons()) send(pid, on === "daemon" ? "SIGKILL" : "SIGSTOP");
}

function record(): void {
  if (process.env.CONTEXTD_TEST_STRUCK) fs.appendFileSync(process.env.CONTEXTD_TEST_STRUCK, `${JSON.stringify(slot())}\n`);
}

function slot(): object {
  const { holding = false, held = [], queued = [] } = shelf[SLOT] ?? {};
  return { holding, held: held.map((one) => one.content), queued: queued.map((one) => one.content) };
}

function watchWrites(manager: Manager): void {
  if (shared.patched.has(manager)) return;
  shared.patched.add(manager);
  const persist = manager._persist.bind(manager);
  manager._persist = (entry) => {
    const type = entry.customType ?? (entry.message ? `message/${entry.message.role}` : entry.type);
    occurs(`write ${type}`);
    if (shared.full) throw new Error(FULL);
    persist(entry);
    occurs(`wrote ${type}`);
  };
}

/** Every pipe of the process; those to and from the daemon are known by what they carry. */
function watchWire(): void {
  const asked = new Map<number, string>();
  const { write, emit } = net.Socket.prototype;

  net.Socket.prototype.write = function (this: net.Socket, ...args: unknown[]): boolean {
    const [request] = lines(args[0]);
    const now = request?.method === undefined ? undefined : due(`asked ${request.method}`);
    if (request?.id !== undefined && request.method !== undefined) asked.set(request.id, request.method);
    const send_ = () => Reflect.apply(write, this, args) as boolean;
    if (!now) return send_();
    if (now.on === "pi") strike(now);
    record();
    for (const pid of daemons()) send(pid, "SIGSTOP");
    const sent = send_();
    if (now.on === "daemon") for (const pid of daemons()) send(pid, "SIGKILL");
    return sent;
  } as typeof write;

  net.Socket.prototype.emit = function (this: net.Socket, ...args: unknown[]): boolean {
    if (args[0] === "data") {
      for (const answer of lines(args[1])) {
        if (answer.id !== undefined && answer.method === undefined) occurs(`answered ${asked.get(answer.id)}`);
      }
    }
    return Reflect.apply(emit, this, args) as boolean;
  } as typeof emit;
}

interface Line {
  id?: number;
  method?: string;
}

function lines(chunk: unknown): Line[] {
  const text = typeof chunk === "string" ? chunk : Buffer.isBuffer(chunk) ? chunk.toString() : "";
  if (!text.includes('"jsonrpc"')) return [];
  return text.split("\n").flatMap((line) => {
    try {
      return [JSON.parse(line) as Line];
    } catch {
      return [];
    }
  });
}

function daemons(): number[] {
  const pids = fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number);
  return pids.filter((pid) => {
    try {
      return stat(pid).parent === process.pid && fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("pi-contextd");
    } catch {
      return false;
    }
  });
}

function stat(pid: number): { state: string; parent: number } {
  const text = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
  const [state = "", parent] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { state, parent: Number(parent) };
}

/** Send a signal to a child and wait until it has had its effect, so that nothing can come between. */
function send(pid: number, signal: "SIGKILL" | "SIGSTOP"): void {
  const wanted = signal === "SIGKILL" ? "ZX" : "TtZX";
  process.kill(pid, signal);
  try {
    while (!wanted.includes(stat(pid).state)) continue;
  } catch {
    // It is gone already.
  }
}
