import { hostname } from "node:os";

/** The longest name that `shared.machine` may have. */
const MAX_LENGTH = 64;

/** What a machine is called by those that share its store: as configured, else its host name without the domain. */
export function machineName(configured: string | null): string {
  if (configured !== null) return configured;
  const [host = ""] = hostname().split(".", 1);
  return host.replace(/[^\w-]/g, "-").slice(0, MAX_LENGTH) || "machine";
}
