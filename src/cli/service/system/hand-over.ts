import { createReadStream, existsSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { type Path, setValue } from "../../../config/edit.ts";
import { loadConfig } from "../../../config/load.ts";
import { formatProblems } from "../../../config/problems.ts";
import { type Config, describeSource, type KeySource } from "../../../config/schema.ts";
import { changeableBy } from "../../../config/system-rules.ts";
import { askDaemon } from "../../../control/client.ts";
import { withNext } from "../../../core/display.ts";
import { EXIT } from "../../../core/errors.ts";
import { isObject } from "../../../core/json.ts";
import { findPaths, type Paths, SYSTEM_PLACES } from "../../../core/paths.ts";
import { packageFolder } from "../../../core/version.ts";
import { readKey } from "../../../keys/sources.ts";
import { forgetKey, type KeyPlace, ownPlace } from "../../../keys/stored-keys.ts";
import { type Program, programFiles } from "../../../service/system-program.ts";
import { stop } from "../../stop.ts";
import { fail, notice } from "../../ui/messages.ts";
import { homeFolder, stdio } from "../../ui/stdio.ts";
import { installedContext, serviceHere } from "../context.ts";
import { uninstall } from "../uninstall.ts";

/*
 * The half of a move that runs as the owner: root starts it with the owner's rights, so that root opens no file and no keychain
 * of the owner. What is handed over goes through a pipe, one JSON line for each file, and is never written elsewhere.
 */

/** One line: a text of config.yaml, a key or a file of the state. */
export type HandedOver =
  | { readonly kind: "config"; readonly text: string }
  | { readonly kind: "key"; readonly name: string; readonly text: string }
  | { readonly kind: "file"; readonly name: string; readonly data: string; readonly isFirst: boolean }
  /** What the owner's folder holds no more once the move is done. */
  | { readonly kind: "remove"; readonly removal: Removal };

/** What only the configuration says, which is removed first. */
export interface Removal {
  readonly config: string;
  readonly places: readonly KeyPlace[];
  /** Secrets that keybearer did not store, so they stay where they are: what they are, and where. */
  readonly staying: readonly string[];
}

const CHUNK = 512 * 1024;
/** They are made again, or belong to this user's own commands. */
const STAYS = /^(?:lock\.db|index\.db|keybearer\.log|.*\.tmp$)/;

function ownPaths(): Paths {
  return findPaths({ env: stdio().env, home: homeFolder() });
}

function write(line: HandedOver): void {
  stdio().stdout.write(`${JSON.stringify(line)}\n`);
}

/** `__hand-over give`: prints everything that moves. With --check, only whether it could. */
export async function give(options: { readonly check?: boolean }): Promise<void> {
  const paths = ownPaths();
  const { config, text, problems } = await loadConfig(paths.config, { home: paths.home, strict: false });
  if (config === null || text === null) return fail(formatProblems(paths.config, problems), EXIT.badConfig);
  const named = Object.values(config.tools).find(({ process }) => process !== null);
  if (named !== undefined)
    return fail(
      `tool ${named.name} has process:, which the system service cannot see. remove it, and give the tool a token`,
      EXIT.badConfig,
    );
  const moved = await moveSecrets(text, config, paths);
  if (typeof moved === "string") return fail(moved, EXIT.failed);
  if (options.check === true) return;
  const asked = await askDaemon(paths, "GET", "/status");
  if (asked.ok || asked.running)
    return fail("it still runs, and writes to its usage log", EXIT.alreadyRunning);
  for (const [name, key] of moved.keys) write({ kind: "key", name, text: key });
  for (const file of filesIn(paths))
    if (!STAYS.test(basename(file))) await giveFile(relative(paths.state, file), file);
  write({ kind: "remove", removal: removalOf(paths, config) });
  // Last: a reader that has it has everything.
  write({ kind: "config", text: moved.text });
}

/** `__hand-over stop`: a keybearer of this user that runs is stopped. Its service stays installed until everything has moved. */
export async function stopHere(): Promise<void> {
  const paths = ownPaths();
  const asked = await askDaemon(paths, "GET", "/status");
  if (asked.ok || asked.running) await stop(paths);
}

interface Moved {
  readonly text: string;
  readonly keys: ReadonlyMap<string, string>;
}

/** config.yaml with every secret in a file of the service, and these files. A text: why a secret cannot be moved. */
async function moveSecrets(before: string, config: Config, paths: Paths): Promise<Moved | string> {
  const keys = new Map<string, string>();
  let text = before;
  for (const { path, name, source, isPassword } of secretsOf(config)) {
    if (await staysAsItIs(source)) continue;
    const read = await readKey(source, {
      env: stdio().env,
      home: paths.own,
      notKeys: paths.notKeys,
      password: isPassword,
      limit: 60_000,
    });
    if (!read.ok) return `${path.join(".")}: ${withNext(read)}\nnothing was changed`;
    // A tool may be called shared-secret.
    const file = keys.has(name) ? `${name}-${keys.size}` : name;
    keys.set(file, read.key.reveal());
    const edited = setValue(text, path, `file:~/keys/${file}`);
    if (!edited.ok) return withNext(edited);
    text = edited.text;
  }
  return { text, keys };
}

async function staysAsItIs(source: KeySource): Promise<boolean> {
  return source.kind === "command" && (await changeableBy(source.argv[0])) === null;
}

interface NamedSecret {
  readonly path: Path;
  /** Of its file. */
  readonly name: string;
  readonly source: KeySource;
  readonly isPassword: boolean;
}

function secretsOf({ tools, gateways, shared, notify }: Config): NamedSecret[] {
  const found: NamedSecret[] = Object.values(tools)
    .filter(({ watchOnly }) => !watchOnly)
    .map(({ name, key }) => ({ path: ["tools", name, "key"], name, source: key, isPassword: false }));
  for (const { name: gateway, console: settings } of Object.values(gateways)) {
    for (const [index, login] of (settings?.logins ?? []).entries()) {
      const at: Path = ["gateways", gateway, "console", "login", ...(login.name === null ? [] : [index])];
      const secrets = {
        password: login.password,
        access_token: login.accessToken,
        refresh_token: login.refreshToken,
      };
      for (const [secret, source] of Object.entries(secrets))
        if (source !== null)
          found.push({
            path: [...at, secret],
            name: `console-${gateway}${login.name === null ? "" : `-${login.name}`}-${secret}`,
            source,
            isPassword: secret === "password",
          });
    }
  }
  for (const { name: webhook, url, secret } of Object.values(notify.webhooks)) {
    found.push({
      path: ["notify", "webhooks", webhook, "url"],
      name: `webhook-${webhook}-url`,
      source: url,
      isPassword: true,
    });
    if (secret !== null)
      found.push({
        path: ["notify", "webhooks", webhook, "secret"],
        name: `webhook-${webhook}-secret`,
        source: secret,
        isPassword: true,
      });
  }
  if (shared?.secret)
    found.push({
      path: ["shared", "secret"],
      name: "shared-secret",
      source: shared.secret,
      isPassword: false,
    });
  if (shared?.store.password)
    found.push({
      path: ["shared", "store", "password"],
      name: "shared-store-password",
      source: shared.store.password,
      isPassword: true,
    });
  return found;
}

function filesIn({ state, usage }: Paths): string[] {
  return [state, usage].flatMap((folder) => {
    if (!existsSync(folder)) return [];
    const entries = readdirSync(folder, { withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ name }) => join(folder, name));
  });
}

async function giveFile(name: string, path: string): Promise<void> {
  let isFirst = true;
  for await (const chunk of createReadStream(path, { highWaterMark: CHUNK }) as AsyncIterable<Buffer>) {
    write({ kind: "file", name, data: chunk.toString("base64"), isFirst });
    isFirst = false;
  }
  if (isFirst) write({ kind: "file", name, data: "", isFirst });
}

/** `__hand-over program`: prints the files of a program. What this user may not read ends it. */
export async function giveProgram(program: Program): Promise<void> {
  const folder = packageFolder(pathToFileURL(program.main).href).pathname.replace(/\/$/, "");
  for (const { name, path } of programFiles(program, folder)) await giveFile(name, path);
}

function removalOf(paths: Paths, config: Config): Removal {
  const secrets = secretsOf(config).map(({ path, source }) => ({
    path,
    source,
    place: ownPlace(source, paths),
  }));
  return {
    config: paths.config,
    places: secrets.flatMap(({ place }) => place ?? []),
    staying: secrets.flatMap(({ path, source, place }) =>
      place === null && source.kind !== "literal" ? [`${path.join(".")}: ${describeSource(source)}`] : [],
    ),
  };
}

/** `__hand-over remove`: removes what was moved. config.yaml goes first: without it nothing is a half installation. */
export async function removeMoved(): Promise<void> {
  const paths = ownPaths();
  const removal: unknown = JSON.parse(await readStdin());
  if (!isObject(removal)) throw new Error("no list of files came through the pipe");
  const { config, places, staying } = removal as unknown as Removal;
  await rm(config, { force: true });
  if ((await serviceHere(await installedContext())) !== null) await uninstall({ yes: true });
  for (const place of places) {
    const forgotten = await forgetKey(place, { env: stdio().env });
    if (!forgotten.ok) fail(forgotten, EXIT.failed);
  }
  for (const file of filesIn(paths)) await rm(file, { force: true });
  const keys = join(dirname(config), "keys");
  for (const folder of [keys, paths.usage, paths.state, dirname(config)]) {
    try {
      rmdirSync(folder);
    } catch {
      // Something of the owner's own is in it, or it is gone.
    }
  }
  const rest = existsSync(keys) ? readdirSync(keys).map((name) => join(keys, name)) : [];
  if (staying.length + rest.length > 0)
    notice(
      `programs that run as you can still read these. remove what you no longer need:\n${[...staying, ...rest].join("\n")}`,
    );
}

/** `__hand-over take`: writes what comes back. config.yaml is last: before it, the system service still has everything. */
export async function take(): Promise<void> {
  const paths = ownPaths();
  const folder = dirname(paths.config);
  const isTaken = existsSync(paths.config);
  const lines = createInterface({ input: stdio().stdin, crlfDelay: Number.POSITIVE_INFINITY });
  for await (const line of lines) {
    const item = JSON.parse(line) as HandedOver;
    if (isTaken) {
      // It was taken before root's half was interrupted, or it is another keybearer, which is not replaced.
      const isSame =
        item.kind !== "config" || textHere(item.text, folder) === readFileSync(paths.config, "utf8");
      if (!isSame)
        return fail(`${paths.config} is there already: move it away first. nothing was changed`, EXIT.failed);
    } else if (item.kind === "key") await writeOwn(join(folder, "keys", item.name), `${item.text}\n`, "w");
    else if (item.kind === "file")
      await writeOwn(
        join(paths.state, item.name),
        Buffer.from(item.data, "base64"),
        item.isFirst ? "w" : "a",
      );
    else if (item.kind === "config") {
      const staged = `${paths.config}.new`;
      await writeOwn(staged, textHere(item.text, folder), "w");
      await rename(staged, paths.config);
    }
  }
}

function textHere(text: string, folder: string): string {
  return text
    .replaceAll("file:~/keys/", `file:${folder}/keys/`)
    .replaceAll(`file:${SYSTEM_PLACES.data}/keys/`, `file:${folder}/keys/`);
}

async function writeOwn(path: string, data: string | Buffer, flag: "w" | "a"): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await writeFile(path, data, { flag, mode: 0o600 });
}

async function readStdin(): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of stdio().stdin) parts.push(Buffer.from(part));
  return Buffer.concat(parts).toString("utf8");
}
