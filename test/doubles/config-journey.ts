import type { Test } from "tap";
import type { DaemonUnderTest } from "./daemon-under-test.ts";
import type { TestGateway } from "./sandbox.ts";

interface Answer {
  readonly status: number;
  /** The refusal's code; null where the gateway answered. */
  readonly refusal: string | null;
  readonly text: string;
}

/** Lists models through the daemon, which is the proof that token, key and address work. */
export async function ask(under: DaemonUnderTest, token: string): Promise<Answer> {
  const response = await fetch(`${under.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
  return {
    status: response.status,
    refusal: response.headers.get("x-keybearer-refusal"),
    text: await response.text(),
  };
}

/** Which key the gateway's last request carried. */
export function lastKey(sandbox: TestGateway): number | null {
  return sandbox.requests().at(-1)?.keyId ?? null;
}

/** What the log says, line by line. */
export function messages(under: DaemonUnderTest): string[] {
  return under.log().map((line) => String(line.msg));
}

/** The state of one tool as `status` shows it. */
export async function toolState(under: DaemonUnderTest, name: string) {
  const { tools } = await under.daemon.status();
  return tools.find((tool) => tool.name === name);
}

export function holdsNone(t: Test, under: DaemonUnderTest, secrets: readonly string[]): void {
  for (const secret of secrets) t.notOk(under.logText().includes(secret), "no secret is in the log");
}
