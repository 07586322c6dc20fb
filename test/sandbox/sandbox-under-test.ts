import type { Test } from "tap";
import type { Clock } from "../../src/core/clock.ts";
import type { SandboxOptions } from "../../src/sandbox/rooms.ts";
import { createSandbox, type Sandbox } from "../../src/sandbox/sandbox.ts";

/** A sandbox on a free port, without delays, stopped when the test is over. An error inside it fails the test. */
export async function startSandbox(t: Test, options: SandboxOptions = {}): Promise<Sandbox> {
  const sandbox = createSandbox({ wordDelay: 0, onError: (error) => t.fail(String(error)), ...options });
  await sandbox.start();
  t.teardown(() => sandbox.stop());
  return sandbox;
}

export interface SandboxKey {
  readonly id: number;
  /** The key itself, as it goes into a header. */
  readonly text: string;
  /** As keybearer may show it. */
  readonly fingerprint: string;
}

export function newKey(sandbox: Sandbox, group = "default"): SandboxKey {
  const { id, key } = sandbox.createKey({ name: "test", group });
  return { id, text: key.reveal(), fingerprint: key.fingerprint };
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** What the text is as JSON; null where it is none. */
  readonly json: unknown;
}

export async function ask(url: string, init: RequestInit = {}): Promise<Answer> {
  const response = await fetch(url, init);
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, json: parsed(text) };
}

export function post(
  url: string,
  key: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  return ask(url, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

export function get(url: string, key: string): Promise<Answer> {
  return ask(url, { headers: { authorization: `Bearer ${key}` } });
}

export function hello(model = "sandbox-small"): {
  model: string;
  messages: { role: string; content: string }[];
} {
  return { model, messages: [{ role: "user", content: "hello" }] };
}

/** Time that passes only when told to. */
export function heldClock(): Clock & { pass(milliseconds: number): void } {
  let passed = 0;
  return {
    now: () => Date.UTC(2026, 10, 15, 12) + passed,
    elapsed: () => passed,
    pass(milliseconds) {
      passed += milliseconds;
    },
  };
}

/** Logs in at the console and speaks to it. */
export async function atConsole(sandbox: Sandbox) {
  const { email, password } = sandbox.login;
  const url = `${sandbox.consoleUrl}/api/v1`;
  const answer = await post(`${url}/auth/login`, "", { email, password: password.reveal() });
  const session = JSON.parse(answer.text).data;
  const headers = { authorization: `Bearer ${session.access_token}`, "content-type": "application/json" };
  return {
    session,
    call: async (method: string, path: string, body?: unknown) => {
      const init = body === undefined ? { method, headers } : { method, headers, body: JSON.stringify(body) };
      const { status, text } = await ask(`${url}${path}`, init);
      const { data, ...rest } = JSON.parse(text);
      return { status, data, ...rest };
    },
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
