import { existsSync, readdirSync, readFileSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { removeValue } from "../../../config/edit.ts";
import { readEffective } from "../../../config/load.ts";
import { parseConfig } from "../../../config/parse.ts";
import { advice } from "../../../core/advice.ts";
import { EXIT, errorMessage } from "../../../core/errors.ts";
import { SYSTEM_PLACES, systemPaths } from "../../../core/paths.ts";
import { writePrivateFile } from "../../../core/private-file.ts";
import {
  ALERTS_FILE,
  ALERTS_UNIT,
  isOurs,
  SERVICE_USER,
  SYSTEM_UNIT,
  SYSUSERS,
} from "../../../service/system-units.ts";
import { fail, printText } from "../../ui/messages.ts";
import type { HandedOver } from "./hand-over.ts";
import { findOrigin, finishMove, MARKER, NO_DRY_RUN, RETURNED, readMarker, STAGED } from "./install.ts";
import { Machine, type UserOfMachine } from "./machine.ts";

const UNITS = "/etc/systemd/system";
const CHUNK = 512 * 1024;

/** `sudo keybearer service uninstall --system`: gives everything back to the owner. The same command goes on after an end. */
export async function uninstallSystem(options: {
  readonly owner?: string;
  readonly dryRun?: boolean;
}): Promise<void> {
  if (process.platform !== "linux") return fail("only Linux has a system service to remove", EXIT.usage);
  if (options.dryRun) return fail(NO_DRY_RUN, EXIT.usage);
  if (process.geteuid?.() !== 0)
    return fail(
      {
        problem: "only root may remove a system service",
        next: advice.systemService("uninstall"),
      },
      EXIT.usage,
    );
  const machine = new Machine();
  try {
    const paths = systemPaths(0);
    const hasConfig = existsSync(paths.config);
    if (!hasConfig && hasKeysOfItsOwn())
      return fail(
        {
          problem: `there is no ${paths.config}, and the keys in ${SYSTEM_PLACES.data} may exist nowhere else. nothing was changed`,
          next: `put config.yaml back, or remove ${SYSTEM_PLACES.data} yourself`,
        },
        EXIT.failed,
      );
    if (hasConfig && !existsSync(RETURNED)) {
      const owner = await findOwner(machine, options.owner);
      if (owner === null) return;
      await machine.systemctlIfThere("stop", SYSTEM_UNIT);
      // Of two whole copies only one may be left.
      const from = await machine.findUser(readMarker()?.owner ?? owner.name);
      if (from !== null) await finishMove(machine, machine.program, from);
      if (!(await giveBack(machine, owner))) return;
      await machine.syncDisks();
      await writePrivateFile(RETURNED, "");
      printText(`config.yaml, keys and usage log are with ${owner.name} again`);
    }
    await removeRest(machine);
    printText("the system service is removed");
  } catch (error) {
    fail(
      `it was not finished: ${errorMessage(error)}\nthe same command goes on where it stopped`,
      EXIT.failed,
    );
  }
}

/** Whether the service's folder has keys that are neither half of a move nor given back already. */
function hasKeysOfItsOwn(): boolean {
  return existsSync(join(SYSTEM_PLACES.data, "keys")) && !existsSync(MARKER) && !existsSync(RETURNED);
}

async function findOwner(machine: Machine, named: string | undefined): Promise<UserOfMachine | null> {
  const { config: file, home } = systemPaths(0);
  const [first] = parseConfig(readFileSync(file, "utf8"), home).config?.owners ?? [];
  const name = named ?? first?.name;
  const owner = name === undefined ? null : await machine.findUser(name);
  if (owner === null) fail(`say to whom it goes back: --owner NAME`, EXIT.usage);
  return owner;
}

/** False: the owner has a keybearer of their own, and the reason was printed. */
async function giveBack(machine: Machine, owner: UserOfMachine): Promise<boolean> {
  const paths = systemPaths(0);
  const read = await readEffective(paths);
  if (read.text === null) throw new Error(read.problem);
  const child = machine.startAs(
    owner,
    machine.program,
    ["__hand-over", "take", "--user"],
    findOrigin(owner.name),
  );
  const done = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code ?? 1));
  });
  child.stdin.on("error", () => {});
  const send = async (item: HandedOver) => {
    if (child.stdin.write(`${JSON.stringify(item)}\n`) || child.stdin.destroyed) return;
    await Promise.race([new Promise((resolve) => child.stdin.once("drain", resolve)), done]);
  };
  const keys = join(SYSTEM_PLACES.data, "keys");
  for (const name of namesIn(keys))
    await send({ kind: "key", name, text: (await readFile(join(keys, name), "utf8")).replace(/\n$/, "") });
  for (const folder of [paths.state, paths.usage])
    for (const name of namesIn(folder)) {
      const data = await readFile(join(folder, name));
      const shown = folder === paths.usage ? `${basename(folder)}/${name}` : name;
      for (let at = 0; at === 0 || at < data.length; at += CHUNK)
        await send({
          kind: "file",
          name: shown,
          data: data.subarray(at, at + CHUNK).toString("base64"),
          isFirst: at === 0,
        });
    }
  const own = removeValue(read.text, ["owners"]);
  await send({ kind: "config", text: own.ok ? own.text : read.text });
  child.stdin.end();
  const code = await done;
  if (code === 0) return true;
  fail(`${owner.name} could not take it back`, code);
  return false;
}

/** Files of the service, without links and what is made again. */
function namesIn(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const entries = readdirSync(folder, { withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && !/^(?:lock\.db|index\.db)|\.tmp$/.test(entry.name))
    .map(({ name }) => name);
}

async function removeRest(machine: Machine): Promise<void> {
  const units = existsSync(UNITS)
    ? readdirSync(UNITS).filter((name) => name === SYSTEM_UNIT || /^keybearer-.+\.socket$/.test(name))
    : [];
  const own = units.filter((name) => isOurs(readFileSync(join(UNITS, name), "utf8")));
  if (own.length > 0) {
    await machine.systemctlIfThere("disable", "--now", ...own);
    for (const name of own) await rm(join(UNITS, name), { force: true });
    await machine.systemctl("daemon-reload");
    await machine.systemctlIfThere("reset-failed", ...own);
  }
  if (existsSync(ALERTS_FILE) && isOurs(readFileSync(ALERTS_FILE, "utf8"))) {
    await machine.systemctlIfThere("--global", "disable", ALERTS_UNIT);
    await rm(ALERTS_FILE, { force: true });
  }
  await rm(STAGED, { recursive: true, force: true });
  await rm(SYSTEM_PLACES.data, { recursive: true, force: true });
  await rm(SYSUSERS, { force: true });
  if ((await machine.findUser(SERVICE_USER)) !== null)
    await machine.run(["userdel", SERVICE_USER], { timeoutMs: 30_000 });
  await rm(MARKER, { force: true });
  await rm(join(SYSTEM_PLACES.config, "config.yaml"), { force: true });
  // Last, so that an end before this goes on here.
  await rm(SYSTEM_PLACES.config, { recursive: true, force: true });
}
