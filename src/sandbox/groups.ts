import { MODELS, type Model } from "./models.ts";

export interface GroupSettings {
  readonly name: string;
  /** Factor on the list price. */
  readonly multiplier: number;
  /** Names of its models; "all" for every model of the sandbox. */
  readonly models: "all" | readonly string[];
  /** A key of a disabled group is refused. Default true. */
  readonly enabled?: boolean;
}

export interface Group {
  readonly id: number;
  readonly name: string;
  readonly multiplier: number;
  readonly models: readonly Model[];
  readonly enabled: boolean;
}

export interface Groups {
  list(): readonly Group[];
  named(name: string): Group | null;
  withId(id: number): Group | null;
  /** Takes effect on the next request. */
  setEnabled(name: string, enabled: boolean): void;
}

/** Three groups, so that a newcomer meets each case: everything, a dearer choice, and one that is closed. */
export const DEFAULT_GROUPS: readonly GroupSettings[] = [
  { name: "default", multiplier: 1, models: "all" },
  { name: "coding", multiplier: 1.5, models: ["sandbox-large", "sandbox-code"] },
  { name: "retired", multiplier: 2, models: "all", enabled: false },
];

export function createGroups(settings: readonly GroupSettings[]): Groups {
  let groups: readonly Group[] = settings.map((each, index) => ({
    id: index + 1,
    name: each.name,
    multiplier: each.multiplier,
    models: each.models === "all" ? MODELS : modelsNamed(each.name, each.models),
    enabled: each.enabled ?? true,
  }));
  const named = (name: string) => groups.find((group) => group.name === name) ?? null;
  return {
    list: () => groups,
    named,
    withId: (id) => groups.find((group) => group.id === id) ?? null,
    setEnabled(name, enabled) {
      if (named(name) === null) throw new Error(`the sandbox has no group ${name}`);
      groups = groups.map((group) => (group.name === name ? { ...group, enabled } : group));
    },
  };
}

function modelsNamed(group: string, names: readonly string[]): readonly Model[] {
  return names.map((name) => {
    const model = MODELS.find((each) => each.id === name);
    if (model === undefined) throw new Error(`the sandbox has no model ${name}, which group ${group} names`);
    return model;
  });
}
