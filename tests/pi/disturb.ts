// What another extension or a failing disk does to a session while entries are appended to it, on Pi 1.6.0.
// Nothing of the product may live here.
//
//   /meanwhile N                   each of the next N times that somebody asks for the leaf, an entry follows at once
//   CONTEXTD_TEST_FAILS_AT=TYPE N  the Nth write of such an entry (a type or custom type) fails
//   CONTEXTD_TEST_DIES_AT=TYPE N   Pi is killed instead
interface Entry {
  type: string;
  customType?: string;
}

/** The session manager at run time. */
interface Manager {
  getLeafId: () => string | null;
  _persist: (entry: Entry) => void;
}

interface Context {
  sessionManager: object;
}

interface Pi {
  on: (event: "session_start", handler: (event: unknown, ctx: Context) => unknown) => void;
  appendEntry: (customType: string, data: unknown) => void;
  registerCommand: (name: string, command: { description: string; handler: (args: string, ctx: Context) => unknown }) => void;
}

export default function (pi: Pi): void {
  pi.registerCommand("meanwhile", {
    description: "Append entries behind the back of whoever asks for the leaf",
    handler: async (args, ctx) => {
      const manager = ctx.sessionManager as Manager;
      const leafOf = manager.getLeafId.bind(manager);
      let left = Number(args);
      manager.getLeafId = () => {
        if (left-- > 0) queueMicrotask(() => pi.appendEntry("beside", {}));
        return leafOf();
      };
    },
  });

  pi.on("session_start", (_event, ctx) => {
    const manager = ctx.sessionManager as Manager;
    at(manager, process.env.CONTEXTD_TEST_FAILS_AT, () => {
      throw new Error("ENOSPC: no space left on device, write");
    });
    at(manager, process.env.CONTEXTD_TEST_DIES_AT, () => process.kill(process.pid, "SIGKILL"));
  });
}

function at(manager: Manager, what: string | undefined, happens: () => void): void {
  if (!what) return;
  const [type, number] = what.split(" ");
  const persist = manager._persist.bind(manager);
  let seen = 0;
  manager._persist = (entry) => {
    if (entry.type !== type && entry.customType !== type) return persist(entry);
    seen += 1;
    if (seen === Number(number)) happens();
    return persist(entry);
  };
}
