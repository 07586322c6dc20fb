import type { Config } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import type { Mode } from "../core/paths.ts";
import type { ProcessLookup } from "../core/process-lookup.ts";
import type { ProjectLookup } from "../proxy/projects.ts";

interface ProjectsDeps {
  readonly clock: Clock;
  readonly home: string;
  readonly mode: Mode;
  readonly processLookup: ProcessLookup;
}

/** The lookup of projects, loaded when a configuration first asks for it. */
export class Projects {
  readonly #deps: ProjectsDeps;
  #lookup: ProjectLookup | null = null;

  constructor(deps: ProjectsDeps) {
    this.#deps = deps;
  }

  get lookup(): ProjectLookup | null {
    return this.#lookup;
  }

  async apply({ usage }: Pick<Config, "usage">): Promise<void> {
    // The system service may not look into another user's processes.
    if (usage.project === "off" || this.#lookup !== null || this.#deps.mode === "system") return;
    await this.#deps.processLookup.prepare();
    const { ProjectLookup } = await import("../proxy/projects.ts");
    this.#lookup ??= new ProjectLookup(this.#deps);
  }
}
