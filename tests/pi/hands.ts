// What a person at the terminal, another extension or a failing disk does to a session, for tests that drive Pi over rpc.
// Nothing of the product may live here.
//
//   /go ID [summarize]   navigate to an entry, as /tree does
//   /reload-now          what /reload does
//   CONTEXTD_TEST_BYSTANDER  a tool: while it is called, append an entry and a message beside it
//   CONTEXTD_TEST_TREE_NOTE  set: append an entry whenever the leaf has moved, as extensions with state of their own do
//   CONTEXTD_TEST_SLOW_END   a gate: what ends a run waits there, once, before Pi settles
//   CONTEXTD_TEST_DISK_FULL  an entry type or custom type: the first write of such an entry fails
import * as fs from "node:fs";
import * as path from "node:path";

interface Context {
  sessionManager: object;
  ui: { notify: (text: string, type?: "info" | "error") => void };
}

interface CommandContext extends Context {
  navigateTree: (target: string, options: { summarize: boolean }) => Promise<{ cancelled: boolean }>;
  reload: () => Promise<void>;
}

interface Pi {
  on: (event: string, handler: (event: { toolName?: string }, ctx: Context) => unknown) => void;
  appendEntry: (customType: string, data: unknown) => void;
  sendMessage: (message: { customType: string; content: string; display: boolean }, options: { triggerTurn: boolean }) => void;
  registerCommand: (name: string, command: { description: string; handler: (args: string, ctx: CommandContext) => unknown }) => void;
}

interface Entry {
  type: string;
  customType?: string;
}

/** The session manager at run time. */
interface Writer {
  _persist: (entry: Entry) => void;
}

export default function (pi: Pi): void {
  pi.registerCommand("go", {
    description: "Navigate to an entry",
    handler: async (args, ctx) => {
      const [target = "", summarize] = args.split(" ");
      const { cancelled } = await ctx.navigateTree(target, { summarize: summarize !== undefined });
      ctx.ui.notify(cancelled ? "stayed" : "moved");
    },
  });

  pi.registerCommand("reload-now", { description: "Reload", handler: (_args, ctx) => ctx.reload() });

  pi.on("tool_call", (event) => {
    if (!process.env.CONTEXTD_TEST_BYSTANDER || event.toolName !== process.env.CONTEXTD_TEST_BYSTANDER) return;
    pi.appendEntry("beside", { of: event.toolName });
    pi.sendMessage({ customType: "deferred", content: "deferred to the end of the turn", display: true }, { triggerTurn: false });
  });

  pi.on("session_tree", () => {
    if (process.env.CONTEXTD_TEST_TREE_NOTE) pi.appendEntry("tree-note", {});
  });

  pi.on("agent_end", async () => {
    const { CONTEXTD_TEST_SLOW_END: name, CONTEXTD_TEST_GATES: gates } = process.env;
    if (!name || !gates) return;
    const gate = path.join(gates, name);
    fs.writeFileSync(`${gate}.reached`, "");
    while (!fs.existsSync(gate)) await new Promise((resolve) => setTimeout(resolve, 4));
  });

  pi.on("session_start", (_event, ctx) => {
    const failing = process.env.CONTEXTD_TEST_DISK_FULL;
    const once = globalThis as { contextdTestDiskFull?: boolean };
    if (!failing || once.contextdTestDiskFull) return;
    once.contextdTestDiskFull = true;
    const writer = ctx.sessionManager as Writer;
    const persist = writer._persist.bind(writer);
    writer._persist = (entry) => {
      if (entry.type !== failing && entry.customType !== failing) return persist(entry);
      writer._persist = persist;
      throw new Error("ENOSPC: no space left on device, write");
    };
  });
}
