import type { ToolPlan } from "../../adopt/plan.ts";
import type { ReadyTool } from "../../adopt/writes.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { shortenHome } from "../../core/display.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { waitUntilActive } from "../config-change.ts";
import { checkConsoleAccess } from "../console-changes.ts";
import { offerService } from "../service/offer.ts";
import { start } from "../start.ts";
import { rotateAtConsole } from "../tools/rotate-at-console.ts";
import { fail, notice, printText } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { setExitCode } from "../ui/stdio.ts";
import { isInteractive } from "../ui/terminal.ts";
import { describePlace } from "./print.ts";
import { type AdoptOptions, holdsKeys, type Search } from "./search.ts";

/* Around the writing of clients' files: keybearer has to run, the clients have to work, and moved keys count as exposed. */

/** False: keybearer does not serve, and the reason was printed. */
export async function ensureRunning(paths: Paths, { yes, config }: AdoptOptions): Promise<boolean> {
  if (!(await isRunning(paths))) {
    if (yes || !isInteractive()) await start(config === undefined ? {} : { config });
    else await offerService(paths);
  }
  if (await isRunning(paths)) return true;
  notice({
    problem: "the clients' files were left as they are: keybearer does not run, and they would get no answer",
    next: `${advice.start()}, then run this again`,
  });
  return false;
}

async function isRunning(paths: Paths): Promise<boolean> {
  return (await askDaemon<Status>(paths, "GET", "/status")).ok;
}

const CHECK_MS = 30_000;

/** A request through keybearer that costs nothing. */
export async function checkTools(paths: Paths, tools: readonly ReadyTool[]): Promise<void> {
  for (const { plan, token, origin } of tools) {
    await waitUntilActive(paths, plan.name, (found) => found !== undefined);
    const problem = await findCallProblem(origin, token, plan.baseUrl);
    if (problem === null) printText(`${plan.name}: a request went through keybearer to ${plan.baseUrl}`);
    else
      fail(
        {
          problem: `${plan.name}: a request through keybearer failed: ${problem}`,
          next: `${advice.doctor()}. to go back: ${advice.adoptUndo()}`,
        },
        EXIT.failed,
      );
  }
}

/** null: the gateway answered. */
async function findCallProblem(origin: string, token: string, baseUrl: string): Promise<string | null> {
  const version = /\/v1beta$/.test(baseUrl) ? "v1beta" : "v1";
  try {
    const response = await fetch(`${origin}/${version}/models`, {
      headers: version === "v1beta" ? { "x-goog-api-key": token } : { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(CHECK_MS),
    });
    await response.arrayBuffer();
    return response.ok ? null : `status ${response.status}`;
  } catch (error) {
    return errorMessage(error);
  }
}

/** What is left, and what to do about keys that were in files. */
export async function finish(
  paths: Paths,
  tools: readonly ReadyTool[],
  again: Search,
  options: AdoptOptions,
): Promise<void> {
  const { found, where } = again;
  const left = new Set<ReadyTool>();
  for (const tool of tools) {
    const { key } = tool.plan;
    const places = found.keys.filter((place) => place.key.equals(key));
    for (const place of places) notice(`${key.fingerprint} is still in ${describePlace(place, where.home)}`);
    const copies = found.shaped.filter((copy) => copy.key.equals(key));
    for (const { file, line } of copies)
      notice(`${key.fingerprint} is still in ${shortenHome(file.path, where.home)}:${line}: delete it there`);
    if (places.length + copies.length > 0) left.add(tool);
  }
  if (left.size > 0) setExitCode(EXIT.failed);
  if (holdsKeys(again)) notice(`other keys are left: ${advice.adopt()}`);
  printText(`restart the clients that were open, and open new terminals. to go back: ${advice.adoptUndo()}`);
  // What still reads the old key would stop to work.
  const whole = tools.filter((tool) => !left.has(tool));
  for (const { plan } of left)
    notice(`${plan.key.fingerprint} is in use elsewhere. later: ${advice.rotate(plan.name)}`);
  await rotateMoved(paths, whole, options);
}

/** A key that was in a file, a shell's history or a session log counts as exposed. */
async function rotateMoved(
  paths: Paths,
  tools: readonly ReadyTool[],
  { rotate, yes }: AdoptOptions,
): Promise<void> {
  if (rotate === false) return;
  const byHand: ToolPlan[] = [];
  for (const { plan } of tools) {
    const { name, key } = plan;
    const access = await checkConsoleAccess(paths, name);
    if (!access.ok) {
      byHand.push(plan);
      continue;
    }
    const isWanted =
      rotate ||
      (!yes &&
        isInteractive() &&
        (await confirm(`${key.fingerprint} was in a file. replace it by a new key of ${name} now?`, "yes")));
    const rotation = { store: null, force: false, yes: true, json: false };
    const done = isWanted ? await rotateAtConsole(paths, name, rotation) : null;
    if (done === "manual") byHand.push(plan);
    else if (done !== "done")
      notice({
        problem: `${key.fingerprint} was in a file, so it counts as exposed`,
        next: advice.rotate(name),
      });
  }
  if (byHand.length === 0) return;
  notice(
    "these keys were in files, so they count as exposed. make new ones at their gateways, and delete these there:",
    ...byHand.map(({ key, name, baseUrl }) => `  ${key.fingerprint} of ${name} at ${baseUrl}`),
    `each new key goes in with: ${advice.rotate("<tool>")}`,
  );
}
