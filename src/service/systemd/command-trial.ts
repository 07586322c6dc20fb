import type { ServiceSpec } from "../spec.ts";
import { unitText } from "./unit.ts";

type Argv = readonly [string, ...string[]];

export interface TrialDeps {
  /** service/keybearer.service. */
  readonly template: string;
  readonly spec: ServiceSpec;
  /** Folders that a drop-in of the person's lets it write to. */
  readonly alsoWritable: readonly string[];
}

/** What the unit says about what a program in it may do and see, and not about the daemon's own life. */
const CONFINES =
  /^(?:UMask|LimitCORE|NoNewPrivileges|Lock|Restrict(?!art)|SystemCall|Keyring|UnsetEnvironment|Private|Protect|ReadWritePaths|Capability)/;
/** Nobody waits for it any more by then. Killing systemd-run would leave the command running. */
const MOST_SECONDS = 5;

/**
 * The argv that has a command run by the user manager, confined as the unit confines it. What it prints comes back
 * through the pipe and is in no journal, and its words are not the name of the unit, which the journal does have.
 */
export function commandTrial(deps: TrialDeps): (argv: Argv, withhold: readonly string[]) => Argv {
  const { spec, template, alsoWritable } = deps;
  const properties = unitText(template, spec)
    .split("\n")
    .filter((line) => CONFINES.test(line))
    // A percent sign is only one in a file, where it begins a specifier.
    .map((line) => line.replaceAll("%%", "%"));
  const more = spec.namespaces ? alsoWritable.map((folder) => `ReadWritePaths=${folder}`) : [];
  const home = spec.home === null ? {} : { KEYBEARER_HOME: spec.home };
  const variables = Object.entries({ PATH: spec.path, ...home, ...spec.environment });
  return (argv, withhold) => [
    "systemd-run",
    ...["--user", "--pipe", "--wait", "--collect", "--quiet", "--service-type=exec"],
    ...["--description=keybearer tries the source of a key"],
    // As a property: the option of that name takes the root for none, which is the home folder.
    "--property=WorkingDirectory=/",
    `--property=RuntimeMaxSec=${MOST_SECONDS}`,
    ...[...properties, ...more].map((line) => `--property=${line}`),
    ...(withhold.length === 0 ? [] : [`--property=UnsetEnvironment=${withhold.join(" ")}`]),
    ...variables.map(([name, value]) => `--setenv=${name}=${value}`),
    "--",
    // The manager would put variables in.
    ...argv.map((word) => word.replaceAll("$", "$$$$")),
  ];
}
