import { basename, join } from "node:path";
import {
  type ClientDescription,
  configFolder,
  described,
  describedClient,
  filesIn,
  type Surroundings,
} from "../description.ts";
import type { Format } from "../format.ts";

const SH_FILES = [".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases", ".kshrc"];
/** In the order in which zsh reads them. */
const ZSH_FILES = [".zshenv", ".zprofile", ".zshrc", ".zlogin"];

/** Nushell and PowerShell. */
const OTHER_SHELLS = [
  join("nushell", "env.nu"),
  join("nushell", "config.nu"),
  join("powershell", "profile.ps1"),
  join("powershell", "Microsoft.PowerShell_profile.ps1"),
];

/** The start files of shells: bash and its relatives, zsh, fish. */
export const SHELL: ClientDescription = describedClient("shell", (where) => {
  const { home, env } = where;
  const variables = { variables: [] };
  const zsh = env.ZDOTDIR || home;
  const fish = join(configFolder(where), "fish");
  return [
    ...SH_FILES.map((name) => described(join(home, name), "sh", variables)),
    ...ZSH_FILES.map((name) => described(join(name === ".zshenv" ? home : zsh, name), "sh", variables)),
    ...(zsh === home ? [] : [described(join(zsh, ".zshenv"), "sh", variables)]),
    ...filesIn(join(fish, "conf.d"), /\.fish$/).map((path) => described(path, "fish", variables)),
    described(join(fish, "config.fish"), "fish", variables),
    described(join(fish, "fish_variables"), "text", {
      ...variables,
      byHand: "fish keeps it as a universal variable: set --erase --universal <its name>",
    }),
    ...OTHER_SHELLS.map((name) =>
      described(join(configFolder(where), name), "text", {
        ...variables,
        byHand: "keybearer does not change the files of this shell: delete the line there",
      }),
    ),
    ...[".xprofile", ".xsessionrc", ".pam_environment"].map((name) =>
      described(join(home, name), name === ".pam_environment" ? "text" : "sh", {
        ...variables,
        byHand: "every program of the session gets it: delete the line, then log in again",
      }),
    ),
  ];
});

export interface StartFile {
  readonly path: string;
  readonly format: Format;
}

/** The start file into which new variables go: that of the person's own shell. */
export function startFile(where: Surroundings): StartFile {
  const { env, platform } = where;
  const [fish, zsh, bash, login, others] = startFiles(where);
  switch (basename(env.SHELL ?? "")) {
    case "fish":
      return fish;
    case "zsh":
      return zsh;
    case "bash":
      // Terminal windows on macOS are login shells, and bash reads .bashrc only in others.
      return platform === "darwin" ? login : bash;
    default:
      return others;
  }
}

/** The start files of all shells. */
export function startFiles(
  where: Surroundings,
): readonly [fish: StartFile, zsh: StartFile, bash: StartFile, login: StartFile, others: StartFile] {
  const { env, home } = where;
  const sh = (path: string): StartFile => ({ path, format: "sh" });
  return [
    { path: join(configFolder(where), "fish", "config.fish"), format: "fish" },
    sh(join(env.ZDOTDIR || home, ".zshrc")),
    sh(join(home, ".bashrc")),
    sh(join(home, ".bash_profile")),
    sh(join(home, ".profile")),
  ];
}

/** The environment of the whole session, of services, and of every user. */
export const SESSION: ClientDescription = describedClient("session", (where) => {
  const { home, platform } = where;
  const config = configFolder(where);
  const unit = {
    variables: [],
    byHand: "a service gets it: systemctl --user edit <service>, then systemctl --user daemon-reload",
  };
  return [
    described("/etc/environment", "dotenv", {
      variables: [],
      byHand: "every user of this machine gets it: sudoedit /etc/environment, then log in again",
    }),
    ...filesIn(join(config, "environment.d"), /\.conf$/).map((path) =>
      described(path, "dotenv", { variables: [] }),
    ),
    ...filesIn(join(config, "systemd", "user"), /\.(?:service|conf)$/).map((path) =>
      described(path, "text", unit),
    ),
    ...(platform === "darwin"
      ? filesIn(join(home, "Library", "LaunchAgents"), /\.plist$/).map((path) =>
          described(path, "text", {
            variables: [],
            byHand: `a program that macOS starts gets it: delete it below EnvironmentVariables, then launchctl unload and load ${path}`,
          }),
        )
      : []),
  ];
});
