import type { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import t from "tap";
import type { Config, Tool } from "../../src/config/schema.ts";
import { Connections } from "../../src/core/connections.ts";
import { PeerLookup } from "../../src/core/peer-user.ts";
import type { Call } from "../../src/proxy/call.ts";
import type { ProxyDeps } from "../../src/proxy/deps.ts";
import { checkOwner, checkUser } from "../../src/proxy/identify.ts";

const ALICE = 61_000;
const BOB = 61_001;
const EVE = 61_002;
const OWNERS = [
  { name: "alice", uid: ALICE },
  { name: "bob", uid: BOB },
];

/** The kernel's table, in which every connection belongs to one user. null: it lists none. */
class TableOf extends Connections {
  readonly #user: number | null;

  constructor(user: number | null) {
    super();
    this.#user = user;
  }

  override async of(): ReturnType<Connections["of"]> {
    return this.#user === null ? null : { user: this.#user, inode: "1" };
  }
}

/** Of a system service that alice and bob own. */
function depsFor(user: number | null): ProxyDeps {
  const peers = new PeerLookup(new TableOf(user));
  peers.serve([ALICE, BOB]);
  const config: Partial<Config> = { owners: OWNERS };
  return { peers, snapshot: () => ({ config }) } as unknown as ProxyDeps;
}

function newRequest(): IncomingMessage {
  return { socket: new Socket() } as IncomingMessage;
}

t.test(
  "the system service serves connections that certainly belong to an owner, and no others",
  async (t) => {
    for (const user of [ALICE, BOB, process.geteuid?.() ?? 0])
      t.equal(await checkUser(newRequest(), depsFor(user)), null, `${user} may call`);
    for (const user of [EVE, null]) {
      const refusal = await checkUser(newRequest(), depsFor(user));
      t.match(
        refusal,
        { code: "other-user", message: /only an owner of keybearer \(alice, bob\)/ },
        `not ${user}`,
      );
    }
    const left = newRequest();
    left.socket.destroy();
    t.equal(await checkUser(left, depsFor(null)), "client-left", "it closed the connection itself");
    t.end();
  },
);

t.test("a tool with an owner is for that owner alone", async (t) => {
  const call = { snapshot: { config: { owners: OWNERS } } } as unknown as Call;
  const check = (user: number | null, owner: string | null) =>
    checkOwner(call, newRequest(), { name: "codex", owner } as Tool, depsFor(user));
  t.equal(await check(ALICE, "alice"), null);
  t.equal(await check(BOB, null), null, "a tool without one is for all of them");
  for (const user of [BOB, null])
    t.match(await check(user, "alice"), {
      code: "other-user",
      message: "tool codex is for the user alice alone",
    });
});
