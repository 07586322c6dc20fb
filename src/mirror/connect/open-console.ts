import type { Agent } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import type { ConsoleKind, Gateway } from "../../config/schema.ts";
import type { Clock } from "../../core/clock.ts";
import { type ConsoleAdapter, ConsoleError, type ConsoleGateway } from "../consoles/console.ts";
import { detectKind } from "../consoles/detect.ts";
import { type AdapterDeps, type CallHistory, type ConsoleClient, HttpClient } from "../consoles/http.ts";
import { SeveralAccounts } from "../consoles/several-accounts.ts";
import { type AccountDeps, ConsoleAccount } from "./account.ts";

export interface ConnectDeps extends AccountDeps {
  readonly clock: Clock;
  /** The gateway's own connections, so that its outbound proxy is used for its console too. */
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  readonly signal: AbortSignal;
  readonly onSkew: (skew: number) => void;
  /** To this gateway's console. */
  readonly calls: CallHistory;
}

/** What every adapter of this gateway's console needs. */
export function adapterDeps(gateway: ConsoleGateway, deps: ConnectDeps): AdapterDeps {
  const { clock, signal, calls, onSkew } = deps;
  const { url } = gateway.console;
  const agent = () => deps.agentFor(gateway, new URL(url).origin);
  return {
    client: new HttpClient({ url, agent, clock, signal, onSkew }),
    calls,
    now: () => clock.now(),
    async pause(milliseconds, purpose) {
      const end = purpose && calls.noteWait({ purpose, until: clock.now() + milliseconds });
      try {
        await pause(milliseconds, undefined, { signal, ref: false });
      } catch {
        throw new ConsoleError("unreachable", "was not read: keybearer is stopping");
      } finally {
        end?.();
      }
    },
  };
}

/** From config.yaml, else detected, which needs no login. */
export async function findKind({ console }: ConsoleGateway, client: ConsoleClient): Promise<ConsoleKind> {
  const kind = console.kind ?? (await detectKind(client, console.url));
  if (kind === "openrouter")
    throw new ConsoleError("not-yet", `is of kind ${kind}, which is not supported yet`);
  return kind;
}

/** The console as config.yaml and the last login say, ready to be read. Throws a ConsoleError. */
export function openConsole(
  kind: ConsoleKind,
  gateway: ConsoleGateway,
  shared: AdapterDeps,
  deps: ConnectDeps,
): ConsoleAdapter {
  const accounts = gateway.console.logins.map((login) => new ConsoleAccount(gateway, login, deps));
  const [first] = accounts;
  if (first !== undefined && first.login.name === null) return first.open(kind, shared);
  return new SeveralAccounts(
    accounts.map((account) => ({
      name: account.login.name ?? "",
      open: () => account.open(kind, shared),
    })),
  );
}
