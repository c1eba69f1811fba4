// A command for the harness's own tests: `/leave` goes back to before the first user message and summarizes what is left behind.
// Pi offers tree navigation to extensions alone, so a test of summary requests needs one.

interface Entry {
  id: string;
  type: string;
  message?: { role: string };
}

interface CommandContext {
  sessionManager: { getBranch: () => Entry[] };
  navigateTree: (target: string, options: { summarize: boolean }) => Promise<{ cancelled: boolean }>;
  ui: { notify: (text: string, type?: "info" | "error") => void };
}

interface Pi {
  registerCommand: (name: string, command: { description: string; handler: (args: string, ctx: CommandContext) => unknown }) => void;
}

export default function (pi: Pi): void {
  pi.registerCommand("leave", {
    description: "Leave this branch with a summary",
    handler: async (_args, ctx) => {
      const first = ctx.sessionManager.getBranch().find((entry) => entry.message?.role === "user");
      if (!first) return ctx.ui.notify("nothing to leave", "error");
      const { cancelled } = await ctx.navigateTree(first.id, { summarize: true });
      ctx.ui.notify(cancelled ? "stayed" : "left");
    },
  });
}
