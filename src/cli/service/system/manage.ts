import { existsSync, readFileSync } from "node:fs";
import { parseConfig } from "../../../config/parse.ts";
import { advice } from "../../../core/advice.ts";
import { EXIT } from "../../../core/errors.ts";
import { systemPaths } from "../../../core/paths.ts";
import { SYSTEM_UNIT } from "../../../service/system-units.ts";
import { fail, printText } from "../../ui/messages.ts";
import { setExitCode, stdio } from "../../ui/stdio.ts";
import { installSystem, startAndWait } from "./install.ts";
import { Machine } from "./machine.ts";

/* `service status|restart|logs|update --system`. */

export async function statusSystem(): Promise<void> {
  const machine = new Machine();
  const { stdout } = await machine.run(
    ["systemctl", "show", SYSTEM_UNIT, "--property=LoadState,ActiveState,SubState,MainPID,StatusText"],
    { timeoutMs: 15_000 },
  );
  const fields = new Map(stdout.split("\n").map((line) => line.split(/=(.*)/s, 2) as [string, string]));
  if (fields.get("LoadState") !== "loaded")
    return fail(
      {
        problem: "the system service is not installed",
        next: advice.systemService("install"),
      },
      EXIT.failed,
    );
  const state = fields.get("ActiveState");
  printText(`the system service is ${state} (${fields.get("SubState")}), pid ${fields.get("MainPID")}`);
  if (fields.get("StatusText")) printText(fields.get("StatusText") ?? "");
  if (state !== "active") {
    printText({ problem: "its log says why", next: `journalctl -u ${SYSTEM_UNIT} -n 30` });
    setExitCode(EXIT.failed);
  }
}

export async function restartSystem(): Promise<void> {
  if (!isRoot("restart")) return;
  const problem = await startAndWait(new Machine());
  if (problem !== null) return fail(`the system service does not answer: ${problem}`, EXIT.failed);
  printText("the system service was restarted");
}

/** Runs the version that was installed meanwhile. */
export async function updateSystem(): Promise<void> {
  if (!isRoot("update")) return;
  if (!existsSync(systemPaths(0).config))
    return fail(
      {
        problem: "the system service is not installed",
        next: advice.systemService("install"),
      },
      EXIT.failed,
    );
  const asked = await new Machine().status();
  const { config: file, home } = systemPaths(0);
  const [owner] = parseConfig(readFileSync(file, "utf8"), home).config?.owners ?? [];
  await installSystem({ isUpdate: true, ...(owner === undefined ? {} : { owner: owner.name }) });
  if (!asked.ok) printText(`it did not answer before: ${asked.problem}`);
}

export async function logsSystem({
  lines,
  follow = false,
}: {
  readonly lines: string;
  readonly follow?: boolean;
}): Promise<void> {
  const result = await new Machine().run(
    [
      "journalctl",
      "--quiet",
      `--unit=${SYSTEM_UNIT}`,
      "--output=cat",
      `--lines=${lines}`,
      follow ? "--follow" : "--no-pager",
    ],
    { timeoutMs: follow ? 0 : 15_000, onLine: (line) => void stdio().stdout.write(`${line}\n`) },
  );
  if (result.code !== 0)
    fail({ problem: "the journal cannot be read", next: advice.systemService("logs") }, EXIT.failed);
}

function isRoot(verb: string): boolean {
  if (process.geteuid?.() === 0) return true;
  fail(
    {
      problem: `only root may ${verb} the system service`,
      next: advice.systemService(verb),
    },
    EXIT.usage,
  );
  return false;
}
