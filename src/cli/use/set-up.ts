import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { WRITABLE } from "../../clients/settings-files.ts";
import { CLIENTS, guessClients } from "../../clients/table.ts";
import { askDaemon } from "../../control/client.ts";
import { advice } from "../../core/advice.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { waitUntilActive } from "../config-change.ts";
import { notice, printText } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { stdio } from "../ui/stdio.ts";
import { askUsage, type FoundTool, findTool, targetFor } from "./tool.ts";
import { writeSettings } from "./write.ts";

/** What the clients are called on the command line, where that is not their id. */
const PROGRAMS: Readonly<Record<string, string>> = {
  "claude-code": "claude",
  "qwen-code": "qwen",
  "gemini-cli": "gemini",
  "copilot-cli": "copilot",
  "cline-cli": "cline",
  "kilo-code": "kilo",
  continue: "cn",
};
const TIMEOUT_MS = 10_000;

/**
 * Offers to point the clients that are installed here at a new tool, then sends a request through keybearer to show that it
 * works. A tool that is named after a client is for that client only.
 * @param token the tool's token, so that no second one is made.
 */
export async function setUpClients(paths: Paths, toolName: string, token: string): Promise<void> {
  const named = guessClients(toolName).map(({ id }) => id);
  const clients = CLIENTS.flatMap((client) => {
    const id = WRITABLE.find((writable) => writable === client.id);
    const isMeant = named.length === 0 || named.includes(client.id);
    return id !== undefined && isMeant && isInstalled(PROGRAMS[id] ?? id) ? [{ id, client }] : [];
  });
  let daemon: RunningDaemon | null = null;
  let origin: string | null = null;
  try {
    for (const { id, client } of clients) {
      if (!(await confirm(`set up ${client.name} now?`, "yes"))) continue;
      // Before the settings are written: they need a model, and only the gateway knows which ones there are.
      daemon ??= await findOrStartDaemon(paths);
      const tool = daemon === null ? null : await servedTool(paths, toolName);
      if (tool === null) return;
      const { target } = await targetFor(paths, tool, client);
      const settings = { ...target, token };
      if (!client.asksUsage) await askUsage(paths, toolName, client);
      if (await writeSettings(paths, tool, { id, name: client.name }, settings, false)) origin = tool.origin;
    }
    if (origin !== null) await tryIt(origin, token);
  } finally {
    await daemon?.stop();
  }
}

/** null: the daemon does not serve the tool, and the problem was printed. */
async function servedTool(paths: Paths, name: string): Promise<FoundTool | null> {
  const effect = await waitUntilActive(paths, name, (found) => found !== undefined);
  if (effect.state === "in force") return findTool(paths, name);
  const { problem, next } =
    effect.state === "not in force" ? effect : { problem: "keybearer has stopped", next: null };
  notice({ problem: `no client was set up: ${problem}`, next });
  return null;
}

interface RunningDaemon {
  stop(): Promise<void>;
}

const STOP_SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** The daemon that runs already, otherwise one for as long as this command needs it. null: the problem was printed. */
async function findOrStartDaemon(paths: Paths): Promise<RunningDaemon | null> {
  const asked = await askDaemon(paths, "GET", "/status");
  if (asked.ok || asked.running) return { stop: async () => {} };
  const args = [process.argv[1] ?? "", "run", ...(paths.explicit ? ["--config", paths.config] : [])];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"], env: stdio().env });
  const stop = () => child.kill("SIGTERM");
  // Without a terminal of its own it takes SIGHUP for a reload, and would go on after this command.
  const endBoth = () => {
    stop();
    process.exit(EXIT.failed);
  };
  for (const signal of STOP_SIGNALS) process.once(signal, endBoth);
  const exited = once(child, "close").then(() => {
    for (const signal of STOP_SIGNALS) process.off(signal, endBoth);
  });
  let messages = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    messages += text;
  });
  // It prints its address once it serves.
  const isServing = await Promise.race([
    once(child.stdout, "data").then(() => true),
    exited.then(() => false),
  ]);
  child.stdout.resume();
  if (isServing)
    return {
      async stop() {
        stop();
        await exited;
      },
    };
  // The rest are lines of its log, as JSON.
  const problem = messages.split("\n").filter((line) => line !== "" && !line.startsWith("{"));
  notice("keybearer could not be started, so no client was set up:", ...problem);
  return null;
}

function isInstalled(program: string): boolean {
  const folders = (stdio().env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
  return folders.some((folder) => isProgram(join(folder, program)));
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    // It is not there, or is not ours to run.
    return false;
  }
}

/** Asks for the models, as a client would: it costs nothing, and shows that token, key and gateway fit together. */
async function tryIt(origin: string, token: string): Promise<void> {
  try {
    const response = await fetch(`${origin}/v1/models`, {
      headers: { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await response.arrayBuffer();
    if (response.ok) printText("it works: a request went through keybearer to the gateway");
    else notice({ problem: `a request through keybearer got ${response.status}`, next: advice.doctor() });
  } catch (error) {
    notice({ problem: `a request to keybearer failed: ${errorMessage(error)}`, next: advice.doctor() });
  }
}
