import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { WRITABLE, type Writable } from "../../clients/settings-files.ts";
import { CLIENTS, guessClients } from "../../clients/table.ts";
import { errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { notice, printText } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { findTool, targetFor } from "./tool.ts";
import { writeSettings } from "./write.ts";

const PROGRAMS: Readonly<Record<Writable, string>> = {
  "claude-code": "claude",
  codex: "codex",
  opencode: "opencode",
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
    return id !== undefined && isMeant && isInstalled(PROGRAMS[id]) ? [{ id, client }] : [];
  });
  let isAnySetUp = false;
  for (const { id, client } of clients) {
    if (!(await confirm(`set up ${client.name} now?`, "yes"))) continue;
    const tool = await findTool(paths, toolName);
    if (tool === null) return;
    const { target } = await targetFor(paths, tool, client);
    const isSetUp = await writeSettings(paths, tool, { id, name: client.name }, { ...target, token }, false);
    isAnySetUp ||= isSetUp;
  }
  if (isAnySetUp) await tryIt(paths, toolName, token);
}

function isInstalled(program: string): boolean {
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
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
async function tryIt(paths: Paths, toolName: string, token: string): Promise<void> {
  const tool = await findTool(paths, toolName);
  if (tool === null || !tool.isServed) return;
  try {
    const response = await fetch(`${tool.origin}/v1/models`, {
      headers: { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await response.arrayBuffer();
    if (response.ok)
      printText("it works: a request went through keybearer to the gateway → keybearer service install");
    else notice(`a request through keybearer got ${response.status} → keybearer doctor`);
  } catch (error) {
    notice(`a request to keybearer failed: ${errorMessage(error)} → keybearer doctor`);
  }
}
