import { consoleSecretName, consoleSources, type Snapshot } from "../config/snapshot.ts";
import type { Logger } from "../core/log.ts";
import type { Keyring } from "../keys/keyring.ts";
import type { Controls, HeldTool, TrustAnswer } from "./routes.ts";

export interface TrustingDeps {
  readonly reload: { readonly snapshot: Snapshot; takeKeys(): Promise<void> };
  readonly keyring: Pick<Keyring, "grant">;
  readonly log: Logger;
}

/** Letting a held key go where config.yaml says, once a person said so. */
export function createTrusting(deps: TrustingDeps): Pick<Controls, "held" | "trust"> {
  function held(name: string): HeldTool[] | null {
    const { snapshot } = deps.reload;
    const tools = Object.values(snapshot.config.tools).filter(
      (tool) => tool.name === name || tool.gateway === name,
    );
    const gateway = snapshot.config.gateways[name];
    if (tools.length === 0 && gateway === undefined) return null;
    const keys = tools.map((tool) => ({ name: tool.name, key: snapshot.keyOf(tool) }));
    const secrets = (gateway === undefined ? [] : consoleSources(gateway)).map(({ account, secret }) => ({
      name: consoleSecretName(name, account, secret),
      key: gateway === undefined ? null : snapshot.consoleSecret(gateway, account, secret),
    }));
    return [...keys, ...secrets].flatMap(({ name, key }) =>
      key?.state === "needs-trust" ? [{ tool: name, what: key.what, from: key.from, to: key.to }] : [],
    );
  }

  async function trust(name: string, seen: readonly HeldTool[], peer: string): Promise<TrustAnswer> {
    const granted: string[] = [];
    const problems: string[] = [];
    for (const hold of held(name) ?? []) {
      const shown = seen.find(({ tool }) => tool === hold.tool);
      if (shown === undefined) continue;
      const answer = await deps.keyring.grant(hold.tool, shown);
      await deps.reload.takeKeys();
      if (!answer.ok) {
        problems.push(answer.reason);
        continue;
      }
      deps.log.warn({ tool: hold.tool, peer }, `trusted: ${answer.granted}`);
      granted.push(`${hold.tool}: ${answer.granted}`);
      if (answer.problem !== null) problems.push(answer.problem);
      if (answer.state.state === "needs-trust")
        problems.push(`${hold.tool} still waits → keybearer trust ${hold.tool}`);
    }
    return { granted, problems };
  }

  return { held, trust };
}
