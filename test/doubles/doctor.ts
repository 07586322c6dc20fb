import { examine } from "../../src/cli/doctor/examine.ts";
import { createContext } from "../../src/cli/service/context.ts";
import type { Paths } from "../../src/core/paths.ts";
import type { Finding } from "../../src/doctor/findings.ts";

/** What doctor finds on a system without a service manager. */
export async function examineHome(
  paths: Paths,
  env: NodeJS.ProcessEnv = {},
  now: number = Date.now(),
): Promise<Finding[]> {
  const service = await createContext({ env, home: paths.home, platform: "aix" });
  return await examine(paths, env, service, now);
}
