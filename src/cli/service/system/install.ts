import { once } from "node:events";
import { existsSync, readFileSync, statSync } from "node:fs";
import { appendFile, chmod, chown, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { removeValue, setValue } from "../../../config/edit.ts";
import { parseConfig } from "../../../config/parse.ts";
import { describeProblems } from "../../../config/problems.ts";
import type { Status } from "../../../control/status.ts";
import { advice } from "../../../core/advice.ts";
import { systemClock } from "../../../core/clock.ts";
import { LIBRARY, ROOT_COMMAND } from "../../../core/command-name.ts";
import { withNext } from "../../../core/display.ts";
import { EXIT, errorMessage } from "../../../core/errors.ts";
import { SYSTEM_PLACES } from "../../../core/paths.ts";
import { writePrivateFile } from "../../../core/private-file.ts";
import { packageFolder } from "../../../core/version.ts";
import { stopSecondsFor } from "../../../service/spec.ts";
import {
  copyProgram,
  findProgramChange,
  findProgramProblem,
  findSource,
  type Program,
  type ProgramPart,
  type ProgramSource,
  removeOldCopies,
} from "../../../service/system-program.ts";
import {
  ALERTS_UNIT,
  isOurs,
  SERVICE_USER,
  SYSTEM_UNIT,
  SYSUSERS,
  socketNames,
  systemFiles,
} from "../../../service/system-units.ts";
import { fail, notice, printText } from "../../ui/messages.ts";
import { stdio } from "../../ui/stdio.ts";
import type { HandedOver, Removal } from "./hand-over.ts";
import { Machine, ROOT, type UserOfMachine } from "./machine.ts";

export interface SystemInstallOptions {
  readonly owner?: string;
  readonly from?: string;
  readonly dryRun?: boolean;
  /** The program may have a new version. */
  readonly isUpdate?: boolean;
}

/** Nothing shows a move in advance, so with --dry-run there must be none. */
export const NO_DRY_RUN = "with --system there is no --dry-run. nothing was changed";

const CONFIG = join(SYSTEM_PLACES.config, "config.yaml");
/** Says that a move has begun and is not finished. Root's, like its folder. */
export const MARKER = join(SYSTEM_PLACES.config, "moving.json");
/** What is taken over, before it is complete. */
export const STAGED = `${SYSTEM_PLACES.data}.new`;
/** Says that everything is with the owner again, and that only the rest is to be removed. The service does not start beside it. */
export const RETURNED = join(SYSTEM_PLACES.config, "returned");

/** Whose keybearer it was, and from which folder, if it was not in the usual ones. */
const ORIGIN = join(SYSTEM_PLACES.config, "origin.json");

interface Origin {
  readonly owner: string;
  /** A KEYBEARER_HOME; null: the owner's usual folders. */
  readonly from: string | null;
}

interface Move extends Origin {
  readonly removal: Removal | null;
}

/** `sudo keybearer service install --system`: every step can be interrupted, and the same command goes on. */
export async function installSystem(options: SystemInstallOptions): Promise<void> {
  const machine = new Machine();
  const owner = await prepare(machine, options);
  if (owner === null) return;
  try {
    const program = await placeProgram(machine, owner, options.isUpdate ?? false);
    if (program === null) return;
    const isMoved = existsSync(CONFIG);
    const from = options.from === undefined ? null : resolve(options.from);
    const move: Move = readMarker() ?? { owner: owner.name, from, removal: null };
    if (move.owner !== owner.name)
      return fail(
        `a move for ${move.owner} was not finished: run it again with --owner ${move.owner}`,
        EXIT.failed,
      );
    if (existsSync(RETURNED))
      return fail(
        { problem: "an uninstall was not finished", next: advice.systemService("uninstall") },
        EXIT.failed,
      );
    if (!isMoved && existsSync(SYSTEM_PLACES.data) && readMarker() === null)
      return fail(
        `${SYSTEM_PLACES.data} is there without ${CONFIG}: put that back, or move the folder away`,
        EXIT.failed,
      );
    if (!isMoved) {
      const code = await machine.runAs(owner, program, ["__hand-over", "give", "--check", "--user"], {
        folder: move.from,
      });
      if (code !== 0) return fail(`nothing was changed`, code);
      if (!(await moveHere(machine, program, owner, move))) return;
    }
    if (isMoved) await giveToService(machine, await prepareUser(machine, program));
    await writeUnits(machine, program);
    const problem = await startAndWait(machine);
    if (problem !== null) {
      const undo = readMarker() === null ? "" : `. to go back: ${advice.systemService("uninstall")}`;
      return fail(`the system service does not answer: ${problem}${undo}`, EXIT.failed);
    }
    await finishMove(machine, program, owner);
    printText(`the system service runs; its owners call it at the same address as before`);
    reportTools(await machine.status());
    // This program may be one of them.
    await removeOldCopies(program);
  } catch (error) {
    fail(
      `it was not finished: ${errorMessage(error)}\nthe same command goes on where it stopped`,
      EXIT.failed,
    );
  }
}

/** null: it cannot be installed, and the reason was printed. */
async function prepare(machine: Machine, options: SystemInstallOptions): Promise<UserOfMachine | null> {
  const name = options.owner ?? stdio().env.SUDO_USER;
  const refuse = (problem: string, next: string | null = null) => {
    fail({ problem, next }, EXIT.usage);
    return null;
  };
  if (process.platform !== "linux") return refuse("the system service needs Linux with systemd");
  if (options.dryRun) return refuse(NO_DRY_RUN);
  if (process.geteuid?.() !== 0)
    return refuse("only root may install a system service", advice.systemService("install", name ?? "NAME"));
  if (name === undefined) return refuse("say whose keybearer it becomes: --owner NAME");
  const systemd = await machine.systemdProblem();
  if (systemd !== null) return refuse(systemd);
  const owner = await machine.findUser(name);
  if (owner === null) return refuse(`there is no user ${name}`);
  if (owner.uid === 0) return refuse("root needs no system service: root can read every file");
  return owner;
}

/** The program that the service runs: this one, or a copy that only root can change. null: the reason was printed. */
async function placeProgram(
  machine: Machine,
  owner: UserOfMachine,
  isUpdate: boolean,
): Promise<Program | null> {
  const source = isUpdate ? findSource(machine.program) : null;
  if (source !== null) {
    notice(
      `the new version is read from ${source.main}: whoever can change that decides what the service runs`,
    );
    return copyFrom(machine, source);
  }
  const folder = packageFolder().pathname.replace(/\/$/, "");
  const problem = findProgramProblem(machine.program, folder);
  if (problem === null) return machine.program;
  notice(
    `${problem}, so this program is copied to ${LIBRARY}. it ran as root just now: only this first time`,
  );
  // A link in what others can change may lead to a file that only root reads, so root does not read there.
  const reader = findProgramChange(machine.program, folder) === null ? ROOT : owner;
  return copyFrom(machine, { ...machine.program, reader: reader.name });
}

async function copyFrom(machine: Machine, source: ProgramSource): Promise<Program | null> {
  const reader = source.reader === ROOT.name ? ROOT : await machine.findUser(source.reader);
  if (reader === null) throw new Error(`there is no user ${source.reader} any more, who has the program`);
  const copied = await copyProgram(readProgram(machine, reader, source), source);
  if ("node" in copied) {
    notice(`from now on root runs ${ROOT_COMMAND}`);
    return copied;
  }
  fail(copied, EXIT.failed);
  return null;
}

async function* readProgram(
  machine: Machine,
  reader: UserOfMachine,
  { node, main }: Program,
): AsyncGenerator<ProgramPart> {
  const args = ["__hand-over", "program", "--user", node, main];
  const child = machine.startAs(reader, machine.program, args, null);
  child.stdin.end();
  const ended = once(child, "close");
  // Awaited below, after the last line.
  ended.catch(() => {});
  for await (const line of createInterface({ input: child.stdout })) {
    const item = JSON.parse(line) as HandedOver;
    if (item.kind === "file") yield { name: item.name, data: Buffer.from(item.data, "base64") };
  }
  const [code] = await ended;
  if (code !== 0)
    throw new Error(
      `${reader.name} could not read the program ${main}, and root does not read what others can change`,
    );
}

/** Takes everything over while the owner's installation stays whole. False: the reason was printed. */
async function moveHere(
  machine: Machine,
  program: Program,
  owner: UserOfMachine,
  move: Move,
): Promise<boolean> {
  const user = await prepareUser(machine, program);
  await writeMarker(move);
  // Its journal must not grow while it is read.
  const { from: folder } = move;
  const stopped = await machine.runAs(owner, program, ["__hand-over", "stop", "--user"], { folder });
  if (stopped !== 0) throw new Error(`the keybearer of ${owner.name} could not be stopped`);
  const received = await receive(machine, program, owner, { folder, user });
  if (received === null) return false;
  const text = withOwner(received.config, owner.name);
  await writeMarker({ ...move, removal: received.removal });
  await rm(SYSTEM_PLACES.data, { recursive: true, force: true });
  await rename(STAGED, SYSTEM_PLACES.data);
  await machine.syncDisks();
  // From here on the system service has everything.
  await writePrivateFile(CONFIG, text, { mode: 0o640, group: user.gid });
  printText(`${CONFIG} is written, and keys and usage log are in ${SYSTEM_PLACES.data}`);
  return true;
}

/** The service's user, and the folder of its configuration. */
async function prepareUser(machine: Machine, program: Program): Promise<UserOfMachine> {
  await writeUnit(SYSUSERS, sysusersText(program));
  const made = await machine.run(["systemd-sysusers", SYSUSERS], { timeoutMs: 30_000 });
  const user = await machine.findUser(SERVICE_USER);
  if (user === null) throw new Error(`systemd-sysusers made no user ${SERVICE_USER}: ${made.stderr.trim()}`);
  await mkdir(SYSTEM_PLACES.config, { recursive: true, mode: 0o750 });
  await chown(SYSTEM_PLACES.config, 0, user.gid);
  await chmod(SYSTEM_PLACES.config, 0o750);
  return user;
}

/** Files of a backup belong to the number that the user had on another machine. */
async function giveToService(machine: Machine, { uid, gid }: UserOfMachine): Promise<void> {
  await chown(CONFIG, 0, gid);
  await chmod(CONFIG, 0o640);
  if (statSync(SYSTEM_PLACES.data).uid === uid) return;
  const argv = ["chown", "-hR", `${uid}:${gid}`, SYSTEM_PLACES.data];
  const { code, stderr } = await machine.run(argv, { timeoutMs: 300_000 });
  if (code !== 0) throw new Error(stderr.trim());
}

interface Received {
  readonly config: string;
  readonly removal: Removal;
}

/** Writes what the owner's half prints into a folder beside the final one. */
async function receive(
  machine: Machine,
  program: Program,
  owner: UserOfMachine,
  { folder, user }: { readonly folder: string | null; readonly user: UserOfMachine },
): Promise<Received | null> {
  await rm(STAGED, { recursive: true, force: true });
  for (const inner of ["", "keys", "state", "state/usage", "run"])
    await makeFolder(join(STAGED, inner), user);
  const child = machine.startAs(owner, program, ["__hand-over", "give", "--user"], folder);
  child.stdin.end();
  const closed = once(child, "close");
  let config: string | null = null;
  let removal: Removal | null = null;
  const files = new Set<string>();
  for await (const line of createInterface({ input: child.stdout })) {
    const item = JSON.parse(line) as HandedOver;
    if (item.kind === "config") config = item.text;
    else if (item.kind === "remove") removal = item.removal;
    else if (item.kind === "key")
      files.add(await addFile(join(STAGED, "keys", safeName(item.name)), `${item.text}\n`));
    else
      files.add(
        await addFile(
          join(STAGED, "state", ...item.name.split("/").map(safeName)),
          Buffer.from(item.data, "base64"),
        ),
      );
  }
  await closed;
  // config.yaml comes last: without it something is missing.
  if (config === null || removal === null) {
    await rm(STAGED, { recursive: true, force: true });
    fail("the owner's keybearer could not be read; it is as it was, start it again", EXIT.failed);
    return null;
  }
  for (const file of files) {
    await chown(file, user.uid, user.gid);
    await chmod(file, 0o600);
  }
  return { config, removal };
}

/** The owner's half is not trusted with where root writes. */
function safeName(name: string): string {
  if (!/^[\w.@ -]+$/.test(name) || name === "." || name === "..")
    throw new Error(`a file has an unusable name: ${name}`);
  return name;
}

async function makeFolder(path: string, { uid, gid }: UserOfMachine): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  await chown(path, uid, gid);
}

async function addFile(path: string, data: string | Buffer): Promise<string> {
  await appendFile(path, data, { mode: 0o600 });
  return path;
}

/** config.yaml with its owner, and without what has no effect in the system service. Throws. */
function withOwner(before: string, owner: string): string {
  const owned = setValue(before, ["owners"], [owner]);
  if (!owned.ok) throw new Error(withNext(owned));
  const project = removeValue(owned.text, ["usage", "project"]);
  const text = project.ok ? project.text : owned.text;
  const { config, problems } = parseConfig(text, SYSTEM_PLACES.data);
  if (config === null) throw new Error(describeProblems(problems));
  return text;
}

/** Units of the owners that config.yaml names. */
async function writeUnits(machine: Machine, program: Program): Promise<void> {
  const { config } = parseConfig(readFileSync(CONFIG, "utf8"), SYSTEM_PLACES.data);
  if (config === null)
    throw new Error(`${CONFIG} has problems: ${advice.asRoot(`${advice.check()} --system`)}`);
  const owners: { name: string; uid: number }[] = [];
  for (const { name } of config.owners) {
    const found = await machine.findUser(name);
    if (found !== null) owners.push(found);
  }
  const files = systemFiles(template(program), {
    ...program,
    owners,
    stopSeconds: stopSecondsFor(config.drain),
  });
  for (const { path, text } of files) await writeUnit(path, text);
  await machine.systemctl("daemon-reload");
  await machine.systemctl("enable", ...socketNames(owners), SYSTEM_UNIT);
  await machine.systemctl("--global", "enable", ALERTS_UNIT);
}

/** Of the program that the service runs: root does not read the owner's. */
function template({ main }: Program): string {
  const folder = packageFolder(pathToFileURL(main).href);
  return readFileSync(new URL("service/keybearer-system.service", folder), "utf8");
}

function sysusersText(program: Program): string {
  const file = systemFiles(template(program), { ...program, owners: [], stopSeconds: 20 }).find(
    ({ path }) => path === SYSUSERS,
  );
  if (file === undefined) throw new Error("there is no file for systemd-sysusers");
  return file.text;
}

/** Never over something that keybearer did not write. */
async function writeUnit(path: string, text: string): Promise<void> {
  if (existsSync(path) && !isOurs(readFileSync(path, "utf8")))
    throw new Error(`${path} was not written by keybearer: move it away first`);
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  const staged = join(dirname(path), `.${basename(path)}.new`);
  await writeFile(staged, text, { mode: 0o644 });
  await rename(staged, path);
}

const START_MS = 60_000;

/** Starts the sockets and the service again. Answers why it does not serve; null: it does. */
export async function startAndWait(machine: Machine): Promise<string | null> {
  await machine.systemctlIfThere("stop", SYSTEM_UNIT);
  const { stdout } = await machine.run(
    ["systemctl", "list-unit-files", "--no-legend", "--plain", "keybearer-*.socket"],
    { timeoutMs: 15_000 },
  );
  const sockets = stdout.split("\n").flatMap((line) => /^(keybearer-\S+\.socket)/.exec(line)?.[1] ?? []);
  await machine.systemctlIfThere("reset-failed", SYSTEM_UNIT, ...sockets);
  await machine.systemctl("restart", ...sockets);
  const started = await machine.run(["systemctl", "start", SYSTEM_UNIT], { timeoutMs: 200_000 });
  const deadline = systemClock.elapsed() + START_MS;
  for (;;) {
    const asked = await machine.status(3000);
    if (asked.ok) return null;
    if (started.code !== 0 || systemClock.elapsed() > deadline)
      return `${asked.problem} → journalctl -u ${SYSTEM_UNIT} -n 30`;
    await pause(200);
  }
}

/** The owner's copies go once the system service has answered. */
export async function finishMove(machine: Machine, program: Program, owner: UserOfMachine): Promise<void> {
  const move = readMarker();
  if (move === null) return;
  if (move.removal !== null) {
    const code = await machine.runAs(owner, program, ["__hand-over", "remove", "--user"], {
      folder: move.from,
      input: JSON.stringify(move.removal),
    });
    if (code !== 0) throw new Error(`the copies of ${owner.name} could not be removed`);
    printText(`the copies of ${owner.name} are removed`);
  }
  const { owner: name, from } = move;
  if (from !== null) await writePrivateFile(ORIGIN, JSON.stringify({ owner: name, from }));
  await rm(MARKER, { force: true });
}

/** The folder to which everything goes back; null: the usual ones of this user. */
export function findOrigin(owner: string): string | null {
  if (!existsSync(ORIGIN)) return null;
  const origin = JSON.parse(readFileSync(ORIGIN, "utf8")) as Origin;
  return origin.owner === owner ? origin.from : null;
}

export function readMarker(): Move | null {
  if (!existsSync(MARKER) || statSync(MARKER).uid !== 0) return null;
  return JSON.parse(readFileSync(MARKER, "utf8")) as Move;
}

async function writeMarker(move: Move): Promise<void> {
  await writePrivateFile(MARKER, JSON.stringify(move));
}

function reportTools(asked: Awaited<ReturnType<Machine["status"]>>): void {
  if (!asked.ok) {
    notice(asked);
    return;
  }
  const { tools }: Status = asked.value;
  const waiting = tools.filter(({ state }) => state === "needs-trust" || state === "key-unavailable");
  notice(
    ...waiting.map(({ name, why, next }) => ({ problem: `tool ${name}: ${why ?? "it has no key"}`, next })),
  );
}
