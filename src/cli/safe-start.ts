import { url as inspectorUrl } from "node:inspector";
import { EXIT } from "../core/errors.ts";
import { ineffectiveStart, unsafeStart } from "../daemon/unsafe-start.ts";
import { fail, notice } from "./ui/messages.ts";
import { stdio } from "./ui/stdio.ts";

/** Why no key may be used in a process that was started like this; null: it may. */
export function unsafeHere(): string | null {
  const { env, execArgv } = stdio();
  return unsafeStart({ env, execArgv, inspected: inspectorUrl() !== undefined });
}

/** Asked before anything is set up. False: the reason was printed. */
export function isSafeStart(): boolean {
  const unsafe = unsafeHere();
  if (unsafe !== null) fail(unsafe, EXIT.badConfig);
  return unsafe === null;
}

/** Says what is set in this shell and has no effect on keybearer. */
export function noteIneffective(): void {
  const ineffective = ineffectiveStart(stdio().env);
  if (ineffective !== null) notice(ineffective);
}
