import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type { Boundary } from "../../doctor/boundary.ts";
import { findChangeable } from "../../service/system-program.ts";

const UNIT = "/etc/systemd/system/keybearer.service";

/** Looks at this machine as the user who runs this. */
export function readBoundary(): Boundary {
  return {
    canSudo: process.geteuid?.() !== 0 && run("sudo", "-n", "true").status === 0,
    groups: process.geteuid?.() === 0 ? [] : run("id", "-nG").stdout.trim().split(/\s+/),
    changeable: findChangeableFile(),
    corePattern: readCorePattern(),
    systemd: readVersion(run("systemctl", "--version").stdout),
  };
}

function run(program: string, ...args: readonly string[]) {
  const { status, stdout } = spawnSync(program, args, {
    encoding: "utf8",
    timeout: 5000,
    stdio: ["ignore", "pipe", "ignore"],
  });
  return { status, stdout: stdout ?? "" };
}

/** The files that the unit names, and what is above them. */
function findChangeableFile(): string | null {
  const text = existsSync(UNIT) ? readFileSync(UNIT, "utf8") : "";
  const start = /^ExecStart=:?(.*)$/m.exec(text)?.[1] ?? "";
  const programs = [...start.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, path = ""]) => path);
  for (const path of [UNIT, "/etc/keybearer", "/run/keybearer", ...programs]) {
    const problem = existsSync(path) ? findChangeable(path) : null;
    if (problem !== null) return problem;
  }
  return null;
}

function readCorePattern(): string | null {
  const pattern = readFileSync("/proc/sys/kernel/core_pattern", "utf8").trim();
  const program = pattern.startsWith("|") ? (pattern.slice(1).trim().split(" ")[0] ?? "") : null;
  return program === null ? null : findChangeable(program);
}

function readVersion(text: string): number | null {
  const version = /^systemd (\d+)/.exec(text)?.[1];
  return version === undefined ? null : Number(version);
}
