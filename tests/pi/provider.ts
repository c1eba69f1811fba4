// A model provider that answers from a script. It runs unchanged on every supported Pi version.
// Here lives what a test needs in place of a model: scripted answers, gates that hold an answer open, a record of requests.
// Nothing of the product may live here, and nothing here may know the product.
//
//   CONTEXTD_TEST_SCRIPT    a JSON file: {"main": [step...], "summary": [step...]}; read again at every request. Where a list
//                           has no step, "replies" may have one for the text that was said last, or for "(summary)"
//   CONTEXTD_TEST_REQUESTS  every request appends one JSON line to this file
//   CONTEXTD_TEST_GATES     the folder in which a step's `waitFor` looks for its file
//   CONTEXTD_TEST_WINDOW    the models' context window, 200000 when unset
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { createAssistantMessageEventStream } from "@earendil-works/pi-ai";

type Json = Record<string, unknown>;
type Kind = "main" | "summary";

interface Step {
  text?: string;
  thinking?: string;
  signature?: string;
  tools?: { name: string; args?: Json; id?: string }[];
  error?: string;
  waitFor?: string;
  usage?: { input?: number; output?: number };
}

interface Tool {
  name: string;
}

interface Message {
  role: string;
  content?: unknown;
  sections?: Record<string, string | null>;
  toolsAdded?: Tool[];
  toolsRemoved?: Tool[];
}

interface Context {
  systemPrompt?: string;
  messages: Message[];
  tools?: Tool[];
}

interface Model {
  id: string;
  api: string;
  provider: string;
}

interface Options {
  signal?: AbortSignal;
  onPayload?: (payload: unknown, model: Model) => unknown;
  onResponse?: (response: { status: number; headers: Record<string, string> }, model: Model) => unknown;
}

class Aborted extends Error {}

// /reload evaluates this module again; a script goes on where it was, so its counters cannot live in the module.
const counters = ((globalThis as { contextdTestSteps?: Record<Kind, number> }).contextdTestSteps ??= { main: 0, summary: 0 });

const POLL_MS = 4;

function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((block: { text?: string }) => block.text ?? "").join("\n");
}

/** The system prompt and the tools: beside the messages on old versions, replayed from system messages on new ones. */
function declared(context: Context): { system: string; tools: string[] } {
  const parts = context.systemPrompt ? [context.systemPrompt] : [];
  const sections = new Map<string, string>();
  const tools = new Set((context.tools ?? []).map((tool) => tool.name));
  for (const message of context.messages) {
    if (message.role !== "system") continue;
    const text = textOf(message.content);
    if (text) parts.push(text);
    for (const [name, value] of Object.entries(message.sections ?? {})) {
      if (value === null) sections.delete(name);
      else sections.set(name, value);
    }
    for (const tool of message.toolsRemoved ?? []) tools.delete(tool.name);
    for (const tool of message.toolsAdded ?? []) tools.add(tool.name);
  }
  return { system: [...parts, ...sections.values()].join("\n\n"), tools: [...tools] };
}

interface Script extends Partial<Record<Kind, Step[]>> {
  replies?: Record<string, Step>;
}

function nextStep(kind: Kind, context: Context): { index: number; step: Step } {
  const index = counters[kind]++;
  const file = process.env.CONTEXTD_TEST_SCRIPT;
  const script = (file ? JSON.parse(fs.readFileSync(file, "utf8")) : {}) as Script;
  const last = context.messages.findLast((message) => message.role !== "system");
  const said = kind === "summary" ? "(summary)" : last?.role === "user" ? textOf(last.content) : "";
  return { index, step: script[kind]?.[index] ?? script.replies?.[said] ?? { text: "done" } };
}

function record(request: Json): void {
  const file = process.env.CONTEXTD_TEST_REQUESTS;
  if (file) fs.appendFileSync(file, `${JSON.stringify(request)}\n`);
}

async function passGate(name: string, signal: AbortSignal | undefined): Promise<void> {
  const gates = process.env.CONTEXTD_TEST_GATES;
  if (!gates) throw new Error("CONTEXTD_TEST_GATES is not set");
  fs.writeFileSync(path.join(gates, `${name}.reached`), "");
  while (!fs.existsSync(path.join(gates, name))) {
    if (signal?.aborted) throw new Aborted();
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  (globalThis as { contextdTestAtGate?: (name: string) => void }).contextdTestAtGate?.(name);
}

function streamSimple(model: Model, context: Context, options?: Options) {
  const stream = createAssistantMessageEventStream();
  // The real types differ between the versions; the shape of these events does not.
  const push = (event: Json) => stream.push(event as unknown as Parameters<typeof stream.push>[0]);
  const { system, tools } = declared(context);
  const kind: Kind = /context summarization assistant/i.test(system) ? "summary" : "main";
  const { index, step } = nextStep(kind, context);

  const input = step.usage?.input ?? 100;
  const output = step.usage?.output ?? 10;
  const content: Json[] = [];
  const message: Json = {
    role: "assistant",
    content,
    api: model.api,
    provider: model.provider,
    model: model.id,
    usage: {
      input,
      output,
      cacheRead: 0,
      cacheWrite: 0,
      totalTokens: input + output,
      cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
    },
    stopReason: "stop",
    timestamp: Date.now(),
  };

  const block = (name: string, key: string, text: string, more: Json = {}) => {
    const part: Json = { type: name, [key]: "", ...more };
    const contentIndex = content.push(part) - 1;
    push({ type: `${name}_start`, contentIndex, partial: message });
    part[key] = text;
    push({ type: `${name}_delta`, contentIndex, delta: text, partial: message });
    push({ type: `${name}_end`, contentIndex, content: text, partial: message });
  };

  const answer = async () => {
    // Other extensions may change the payload: what counts is the one that would be sent.
    const payload = { model: model.id, system, messages: context.messages, tools };
    const sent = (await options?.onPayload?.(payload, model)) ?? payload;
    const payloadHash = createHash("sha256").update(JSON.stringify(sent)).digest("hex");
    record({ kind, index, model: model.id, messages: context.messages, system, tools, payloadHash });
    await options?.onResponse?.({ status: 200, headers: {} }, model);
    if (step.waitFor) await passGate(step.waitFor, options?.signal);
    if (options?.signal?.aborted) throw new Aborted();
    if (step.error) throw new Error(step.error);

    push({ type: "start", partial: message });
    if (step.thinking !== undefined) block("thinking", "thinking", step.thinking, step.signature ? { thinkingSignature: step.signature } : {});
    if (step.text !== undefined) block("text", "text", step.text);
    for (const [position, tool] of (step.tools ?? []).entries()) {
      const id = tool.id ?? `call_${kind}_${index}_${position}`;
      const toolCall = { type: "toolCall", id, name: tool.name, arguments: tool.args ?? {} };
      const contentIndex = content.push(toolCall) - 1;
      push({ type: "toolcall_start", contentIndex, partial: message });
      push({ type: "toolcall_delta", contentIndex, delta: JSON.stringify(toolCall.arguments), partial: message });
      push({ type: "toolcall_end", contentIndex, toolCall, partial: message });
    }
    message.stopReason = step.tools?.length ? "toolUse" : "stop";
    push({ type: "done", reason: message.stopReason, message });
    stream.end();
  };

  answer().catch((failure: unknown) => {
    const aborted = failure instanceof Aborted;
    message.stopReason = aborted ? "aborted" : "error";
    message.errorMessage = aborted ? "Request was aborted" : failure instanceof Error ? failure.message : String(failure);
    push({ type: "error", reason: message.stopReason, error: message });
    stream.end();
  });
  return stream;
}

const model = (id: string, name: string, more: Json = {}) => ({
  id,
  name,
  reasoning: true,
  input: ["text", "image"],
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
  contextWindow: Number(process.env.CONTEXTD_TEST_WINDOW ?? 200000),
  maxTokens: 8192,
  ...more,
});

/** One whose provider has a cache with prices, and whose reasoning is bound to all that came before it. */
const priced = {
  cost: { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 },
  compat: { supportsMidConvoEffort: true },
};

export default function (pi: { registerProvider: (name: string, config: Json) => void }): void {
  pi.registerProvider("fake", {
    name: "Fake",
    baseUrl: "http://localhost:0", // required, never called
    apiKey: "fake-key",
    api: "fake-api",
    streamSimple,
    models: [model("fake-1", "Fake 1"), model("fake-2", "Fake 2"), model("fake-priced", "Fake priced", priced)],
  });
}
