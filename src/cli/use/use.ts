import { WRITABLE, type Writable } from "../../clients/settings-files.ts";
import { switchLink } from "../../clients/snippets.ts";
import { CLIENTS, type Client, findClient, guessClients, type Shell } from "../../clients/table.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import { addToken } from "../tools/token.ts";
import { fail } from "../ui/messages.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import {
  clientsInJson,
  clientsInWords,
  type Settings,
  settingsInJson,
  settingsInWords,
  unusableInWords,
} from "./print.ts";
import { findTool, targetFor } from "./scene.ts";
import { undoSettings } from "./undo.ts";
import { writeSettings } from "./write.ts";

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

export async function use(name: string, options: UseOptions): Promise<void> {
  const paths = findPaths({ config: options.config });
  const choice = options.for === undefined ? guessClients(name) : named(options.for);
  const [client] = choice.length > 1 ? [] : choice;
  // What was written can be taken back when the tool is gone, too.
  if (options.undo && client !== undefined) return undo(paths, name, client, options);
  const found = await findTool(paths, name);
  if (!found.ok) return fail(found.reason, found.code);
  if (options.for !== undefined && choice.length === 0)
    return fail(
      `there is no client ${options.for}. all of them: keybearer use ${name} --for list`,
      EXIT.usage,
    );
  if (client === undefined) return list(name, choice.length === 0 ? CLIENTS : choice, options);
  const target = await targetFor(paths, found.tool, client);
  await show(paths, { tool: found.tool, client, target }, options);
}

/** `list` is what somebody types who wants all of them. */
function named(id: string): readonly Client[] {
  if (id === "list") return CLIENTS;
  const client = findClient(id.toLowerCase());
  return client === null ? guessClients(id) : [client];
}

function list(name: string, choice: readonly Client[], options: UseOptions): void {
  // Without a client there is nothing that a token could be put into.
  if (changes(options)) fail(clientsInWords(name, choice, width()).trimEnd(), EXIT.usage);
  else if (options.json) process.stdout.write(json(clientsInJson(name, choice)));
  else process.stdout.write(clientsInWords(name, choice, width()));
}

function changes({ newToken, link, write, undo }: UseOptions): boolean {
  return Boolean(newToken || link || write || undo);
}

async function show(paths: Paths, settings: Settings, options: UseOptions): Promise<void> {
  const { client, tool } = settings;
  if (client.unusable !== null) {
    const words = unusableInWords(settings, width());
    if (changes(options)) fail(words.trimEnd(), EXIT.failed);
    else process.stdout.write(options.json ? json(settingsInJson(settings, null)) : words);
    return;
  }
  if (options.link && client.switchApp === null) {
    const known = CLIENTS.filter(({ switchApp }) => switchApp !== null).map(({ id }) => id);
    return fail(`cc-switch does not know ${client.name}, only ${known.join(", ")}`, EXIT.usage);
  }
  if (options.write) return write(paths, settings, options);
  if (!changes(options)) return print(settings, options, null);
  const token = await addToken(paths, tool.name, client.id);
  if (token === null) return;
  const target = { ...settings.target, token };
  const link = options.link ? switchLink(client, tool.name, target) : null;
  print({ ...settings, target }, options, link);
}

async function write(paths: Paths, { tool, client, target }: Settings, options: UseOptions): Promise<void> {
  const id = writable(client);
  if (id === null)
    return fail(notWritable(client, `keybearer use ${tool.name} --for ${client.id}`), EXIT.usage);
  const { origin, model, small = null } = target;
  const yes = options.yes ?? false;
  await writeSettings({ paths, tool, client: id, clientName: client.name, origin, model, small, yes });
}

async function undo(paths: Paths, tool: string, client: Client, options: UseOptions): Promise<void> {
  const id = writable(client);
  if (id === null) return fail(notWritable(client, null), EXIT.usage);
  const { yes = false, force = false } = options;
  await undoSettings({ paths, tool, client: id, clientName: client.name, yes, force });
}

function writable({ id }: Client): Writable | null {
  return WRITABLE.find((each) => each === id) ?? null;
}

function notWritable({ name }: Client, next: string | null): string {
  const words = `the settings of ${name} are not written by keybearer, only those of ${WRITABLE.join(", ")}`;
  return next === null ? words : `${words}. to paste them: ${next} --new-token`;
}

function print(settings: Settings, options: UseOptions, link: string | null): void {
  if (options.json) process.stdout.write(json(settingsInJson(settings, link)));
  // Alone on stdout, so that it can be handed on: xdg-open "$(keybearer use codex --link)"
  else if (link !== null) process.stdout.write(`${link}\n`);
  else process.stdout.write(settingsInWords(settings, options.shell ?? shellInUse(), width()));
}

/** The person's own shell; one that is not known is taken for a descendant of sh. */
function shellInUse(): Shell {
  if (process.platform === "win32") return "powershell";
  return /\/fish$/.test(process.env.SHELL ?? "") ? "fish" : "sh";
}

function width(): number {
  return stdoutScreen().width;
}

function json(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
