import { chownSync } from "node:fs";
import type { Test } from "tap";

const NOBODY = 65_534;

/**
 * From here to its end the test is an ordinary user, who owns these paths: to root no permission says no. Who is not root
 * is one already.
 */
export function asOrdinaryUser(t: Test, ...owned: readonly string[]): void {
  if (process.getuid?.() !== 0) return;
  for (const path of owned) chownSync(path, NOBODY, NOBODY);
  process.setegid?.(NOBODY);
  process.seteuid?.(NOBODY);
  t.teardown(() => {
    process.seteuid?.(0);
    process.setegid?.(0);
  });
}
