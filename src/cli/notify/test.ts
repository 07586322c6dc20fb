import { askDaemon, CONSOLE_TIMEOUT_MS } from "../../control/client.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { TestResult } from "../../notify/status.ts";
import { fail, print, printJson, printText } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { commandPaths, setExitCode } from "../ui/stdio.ts";
import { isInteractive } from "../ui/terminal.ts";

/** Longer than the attempt that runs and the test after it may take. */
const TIMEOUT_MS = CONSOLE_TIMEOUT_MS;

export async function testChannels(
  channel: string | undefined,
  options: { readonly json?: boolean },
): Promise<void> {
  const body = { channel: channel ?? null };
  const asked = await askDaemon<TestResult[]>(commandPaths(), "POST", "/notify/test", body, TIMEOUT_MS);
  if (!asked.ok) return fail({ problem: asked.problem, next: asked.next ?? advice.status() }, EXIT.failed);
  const results = asked.value;
  if (results.some(({ result }) => result === "failed" || result === "held")) setExitCode(EXIT.failed);
  if (options.json) return printJson(results);
  if (results.length === 0)
    return fail({ problem: "config.yaml names no channel", next: "notify: { desktop: true }" }, EXIT.failed);
  for (const result of results) printText(describeTest(result));
  if (results.every(({ result }) => result === "absent"))
    print(`so only ${advice.status()} shows what happens: add a webhook, see docs/alerts.md`);
  const isShown = results.some(({ kind, result }) => kind === "desktop" && result === "delivered");
  if (isShown && isInteractive()) await askWhetherShown();
}

function describeTest({ channel, kind, result, problem, next }: TestResult) {
  const name = channel === kind ? channel : `${channel} (${kind})`;
  switch (result) {
    case "delivered":
      return `${name}: ${kind === "desktop" ? "sent to the desktop" : "delivered"}`;
    case "absent":
      return `${name}: ${problem}, so nothing is shown`;
    case "held":
      return { problem: `${name}: not sent, because ${problem}`, next };
    case "failed":
      return { problem: `${name}: not delivered: ${problem}`, next };
  }
}

/** Only a person can see it: a desktop takes a notification also while it shows none. */
async function askWhetherShown(): Promise<void> {
  if (await confirm("did a notification appear on the desktop?", "yes")) return;
  const next =
    process.platform === "darwin"
      ? "allow notifications of Script Editor in System Settings › Notifications, and turn off Focus"
      : "turn off Do Not Disturb, and allow notifications of keybearer in the desktop's settings";
  fail({ problem: "the desktop took the notification, but does not show it", next }, EXIT.failed);
}
