import { spawn, spawnSync } from "node:child_process";
import type { Test } from "tap";

/** Runs programs as another user of this machine. Only root can, and the other user must be able to run this node. */
export const OTHER_USER = 54_321;

const AS_OTHER = { uid: OTHER_USER, gid: OTHER_USER, cwd: "/", env: {} };

/** Why no program can run as another user here; false: one can. For the `skip` of a test. */
export function cannotBeOtherUser(): string | false {
  if (process.platform !== "linux" || process.getuid?.() !== 0)
    return "only root on Linux can start a program as another user";
  const { status } = spawnSync(process.execPath, ["-e", ""], AS_OTHER);
  return status === 0 ? false : "another user may not run this node";
}

/** Runs JavaScript as another user, to its end. Returns what it printed. */
export async function asOtherUser(t: Test, code: string, ...args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, ["--input-type=module", "-e", code, ...args], {
    ...AS_OTHER,
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const chunks: Buffer[] = [];
  for await (const chunk of child.stdout) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
