// For journeys of keys that a console makes: a home with one tool, whose gateway has a sub2api console.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import { newHome, saveConfig } from "./command.ts";
import { freshToken } from "./daemon-under-test.ts";
import { newKey, type TestGateway } from "./sandbox.ts";

export interface KeyJourney {
  readonly home: string;
  readonly token: string;
  /** The key that the tool begins with. */
  readonly first: string;
}

/**
 * @param settings lines of the tool
 * @param hasConsole whether config.yaml names the console. A daemon that reads one takes four times as long to start.
 */
export async function prepareHome(
  t: Test,
  gateway: TestGateway,
  settings = "",
  hasConsole = true,
): Promise<KeyJourney> {
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const { email, password } = gateway.account;
  const { text: first } = newKey(gateway);
  const console = `    console: { kind: sub2api, url: ${gateway.origin}, login: { email: ${email}, password: ${password.reveal()} } }\n`;
  await saveConfig(
    home,
    `listen: localhost:0
dashboard: { listen: localhost:0 }
gateways:
  main:
    base_url: ${gateway.baseUrl}
${hasConsole ? console : ""}tools:
  codex:
    key: ${first}
    token: ${hash}
${settings}
`,
  );
  return { home, token, first };
}

export const ROTATE = ["tools", "rotate", "codex", "--store", "file", "--yes"];

/** The keys that exist at the gateway, without those that were deleted. */
export function liveKeys(gateway: TestGateway): string[] {
  return gateway.account.keys.filter(({ deletedAt }) => deletedAt === null).map(({ name }) => name);
}

export function readConfig(home: string): string {
  return readFileSync(join(home, "config.yaml"), "utf8");
}
