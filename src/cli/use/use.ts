import type { ClientId } from "../../clients/description.ts";
import { WRITABLE } from "../../clients/settings-files.ts";
import { switchLink } from "../../clients/snippets.ts";
import { CLIENTS, type Client, findClient, guessClients, type Shell } from "../../clients/table.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { addToken } from "../tools/token.ts";
import { fail, printJson, printLayout } from "../ui/messages.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import {
  clientsJson,
  formatClients,
  formatSettings,
  formatUnusable,
  type Settings,
  settingsJson,
} from "./print.ts";
import { askUsage, findTool, targetFor } from "./tool.ts";
import { undoSettings, writeSettings } from "./write.ts";

export interface UseOptions {
  readonly for?: string;
  readonly shell?: Shell;
  readonly newToken?: boolean;
  readonly link?: boolean;
  readonly write?: boolean;
  readonly undo?: boolean;
  readonly yes?: boolean;
  readonly force?: boolean;
  readonly json?: boolean;
  readonly config?: string;
}

/** `keybearer use <tool>`; only --for list needs no tool. */
export async function use(name: string | undefined, options: UseOptions): Promise<void> {
  if (options.for === "list" && !makesChanges(options)) return listClients(null, CLIENTS, options);
  if (name === undefined)
    return fail(
      `which tool? ${advice.use("<tool>")}. your tools: ${advice.tools()}. all clients: ${advice.clients()}`,
      EXIT.usage,
    );
  const paths = commandPaths(options.config);
  const candidates = options.for === undefined ? guessClients(name) : namedClients(options.for);
  const client = candidates.length === 1 ? candidates[0] : undefined;
  // Settings can be put back after the tool was removed from config.yaml, too.
  if (options.undo && client !== undefined) return undo(paths, name, client, options);
  const tool = await findTool(paths, name);
  if (tool === null) return;
  if (options.for !== undefined && candidates.length === 0)
    return fail(`there is no client ${options.for}. all of them: ${advice.clients()}`, EXIT.usage);
  if (client === undefined) return listClients(name, candidates.length === 0 ? CLIENTS : candidates, options);
  const { target, noModel } = await targetFor(paths, tool, client);
  await show(paths, { tool, client, target, noModel }, options);
}

function namedClients(id: string): readonly Client[] {
  if (id === "list") return CLIENTS;
  const client = findClient(id.toLowerCase());
  return client === null ? guessClients(id) : [client];
}

function listClients(name: string | null, clients: readonly Client[], options: UseOptions): void {
  const text = formatClients(name, clients, stdoutScreen().width, options.newToken);
  // Without a client there is no place to put a token in.
  if (makesChanges(options)) fail(text.trimEnd(), EXIT.usage);
  else if (options.json) printJson(clientsJson(name, clients));
  else printLayout(text);
}

function makesChanges({ newToken, link, write, undo }: UseOptions): boolean {
  return Boolean(newToken || link || write || undo);
}

async function show(paths: Paths, settings: Settings, options: UseOptions): Promise<void> {
  const { client, tool } = settings;
  if (client.unusable !== null) return showUnusable(settings, options);
  if (options.link && client.switchApp === null) {
    const known = CLIENTS.filter(({ switchApp }) => switchApp !== null).map(({ id }) => id);
    return fail(`cc-switch does not know ${client.name}, only ${known.join(", ")}`, EXIT.usage);
  }
  if (!client.asksUsage && !tool.isSandbox) await askUsage(paths, tool.name, client);
  if (options.write) return write(paths, settings, options);
  if (!makesChanges(options)) return printSettings(settings, options, null);
  const token = await addToken(paths, tool.name, client.id);
  if (token === null) return;
  const target = { ...settings.target, token };
  const link = options.link ? switchLink(client, tool.name, target) : null;
  printSettings({ ...settings, target }, options, link);
}

function showUnusable(settings: Settings, options: UseOptions): void {
  const text = formatUnusable(settings, stdoutScreen().width);
  if (makesChanges(options)) fail(text.trimEnd(), EXIT.failed);
  else if (options.json) printJson(settingsJson(settings, null));
  else printLayout(text);
}

async function write(paths: Paths, { tool, client, target }: Settings, options: UseOptions): Promise<void> {
  const id = writableId(client);
  if (id === null) {
    const next = advice.useNewToken(tool.name, client.id);
    return fail(`${notWritable(client)}. to paste them: ${next}`, EXIT.usage);
  }
  await writeSettings(paths, tool, { id, name: client.name }, target, options.yes ?? false);
}

async function undo(paths: Paths, tool: string, client: Client, options: UseOptions): Promise<void> {
  const id = writableId(client);
  if (id === null) return fail(notWritable(client), EXIT.usage);
  const { yes = false, force = false } = options;
  await undoSettings(paths, tool, { id, name: client.name }, yes, force);
}

function writableId({ id }: Client): ClientId | null {
  return WRITABLE.find((each) => each === id) ?? null;
}

function notWritable({ name }: Client): string {
  return `keybearer does not write the settings of ${name}, only those of ${WRITABLE.join(", ")}`;
}

function printSettings(settings: Settings, options: UseOptions, link: string | null): void {
  if (options.json) printJson(settingsJson(settings, link));
  // Alone on stdout, so that it can be passed on: xdg-open "$(keybearer use codex --link)"
  else if (link !== null) stdio().stdout.write(`${link}\n`);
  else {
    const shell = options.shell ?? currentShell();
    stdio().stdout.write(formatSettings(settings, shell, stdoutScreen().width));
  }
}

/** The person's own shell. An unknown one is taken for a relative of sh. */
function currentShell(): Shell {
  if (process.platform === "win32") return "powershell";
  return /\/fish$/.test(stdio().env.SHELL ?? "") ? "fish" : "sh";
}
