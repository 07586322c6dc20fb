/** The requests the bench sends: prompts as coding agents send them, in two protocols. */

export const MODEL = "bench-model";
export const UPSTREAM_KEY = "sk-bench-0123456789abcdefghijklmnopqrstuvwxyz";

export type Protocol = "chat" | "messages";

export const PATHS: Readonly<Record<Protocol, string>> = {
  chat: "/v1/chat/completions",
  messages: "/v1/messages",
};

export interface Prompt {
  readonly protocol: Protocol;
  /** Size of the whole JSON body. */
  readonly bytes: number;
  /** Clients differ in where they put `model`. Last means that the whole body must be scanned to find it. */
  readonly modelLast: boolean;
  /** null asks for a plain JSON answer. */
  readonly stream: StreamRequest | null;
}

export interface StreamRequest {
  readonly events: number;
  /** Time between two events; 0 asks for all events as fast as the upstream can write them. */
  readonly paceMs: number;
}

/** A body of exactly `prompt.bytes` bytes. */
export function promptBody(prompt: Prompt): Buffer {
  const opening = { role: "user", content: `${instruction(prompt.stream)}Rename this function.` };
  const messages = [opening];
  const bytesOf = (value: object) => Buffer.byteLength(JSON.stringify(value));
  const turnBytes = bytesOf(conversationTurn(100));
  const turns = Math.floor((prompt.bytes - bytesOf(bodyOf(prompt, messages))) / turnBytes);
  for (let turn = 0; turn < turns; turn += 1) messages.push(...conversationTurn(turn));
  opening.content += "x".repeat(Math.max(0, prompt.bytes - bytesOf(bodyOf(prompt, messages))));
  return Buffer.from(JSON.stringify(bodyOf(prompt, messages)));
}

function bodyOf(prompt: Prompt, messages: readonly { role: string; content: string }[]): object {
  const rest = {
    max_tokens: 1024,
    ...(prompt.stream === null ? {} : { stream: true }),
    messages,
    // A small prompt is a short question without tools.
    ...(prompt.bytes < 10_000 ? {} : { tools: toolsFor(prompt.protocol) }),
  };
  return prompt.modelLast ? { ...rest, model: MODEL } : { model: MODEL, ...rest };
}

/**
 * What the upstream is to answer. It stands in the text of a message, because gateways that convert requests drop unknown
 * headers and fields but keep the text.
 */
function instruction(stream: StreamRequest | null): string {
  return stream === null ? "" : `[bench: ${stream.events} events, ${stream.paceMs} ms apart] `;
}

/** null when the body asks for a plain answer. */
export function readInstruction(body: Buffer): StreamRequest | null {
  const start = body.indexOf("[bench: ");
  if (start === -1) return null;
  const text = body.toString("latin1", start, start + 60);
  const match = /^\[bench: (\d{1,5}) events, (\d{1,4}) ms apart\]/.exec(text);
  return match === null ? null : { events: Number(match[1]), paceMs: Number(match[2]) };
}

/** About 3 KB: a tool result with code, and an answer. Quotes, tabs, line breaks and non-ASCII text need escaping. */
function conversationTurn(turn: number): { role: string; content: string }[] {
  const file = [
    `src/module-${turn}/reader.ts`,
    "",
    'import { readFile } from "node:fs/promises";',
    "",
    "/** Liest die Datei und prüft sie – « déjà vu » → ✓ 日本語. */",
    "export async function readSettings(path: string): Promise<Settings> {",
    '\tconst text = await readFile(path, "utf8");',
    `\tif (text.includes("\\u0000")) throw new Error(\`\${path}: "NUL" in line ${turn}\`);`,
    "\treturn JSON.parse(text.replace(/\\\\r\\\\n/g, '\\n')) as Settings;",
    "}",
    "",
  ].join("\n");
  return [
    { role: "user", content: `Contents of the file:\n\`\`\`ts\n${file.repeat(5)}\`\`\`` },
    {
      role: "assistant",
      content: `I read it. The call \`readSettings("~/.config/${turn}.json")\` fails when the file has a BOM:\n\n    {"error":"Unexpected token \\ufeff"}\n\nI will change one line.`,
    },
  ];
}

function toolsFor(protocol: Protocol): object[] {
  const schema = {
    type: "object",
    properties: {
      path: { type: "string", description: 'Absolute path, e.g. "/home/me/app.ts"' },
      old_text: { type: "string", description: "Text to replace; must occur exactly once" },
      new_text: { type: "string" },
    },
    required: ["path", "old_text", "new_text"],
  };
  return ["read_file", "edit_file", "run_command", "search"].map((name) => {
    const description = `Tool "${name}".\nUse it only when the user asked for it.`;
    return protocol === "chat"
      ? { type: "function", function: { name, description, parameters: schema } }
      : { name, description, input_schema: schema };
  });
}
