import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import t from "tap";
import { asFields, asList } from "../../src/core/json.ts";
import { Secret } from "../../src/core/secret.ts";
import { parseReply, type Reply, StoreClient } from "../../src/shared/connection.ts";
import { GRANT, JOIN } from "../../src/shared/scripts.ts";
import { repeats } from "../doubles/effort.ts";
import { emptyStore, missingStore, type StoreServer } from "./redis.ts";

const NAMES = ["a", "b", "c"] as const;
const LIMIT = 12;
const HOUR = 3_600_000;

/** What a machine does next. `lost`: the store gets the call, and its answer does not arrive. */
type Step =
  | { readonly do: "join" | "crash" | "use" | "repeat" | "stale"; readonly machine: number }
  | {
      readonly do: "ask";
      readonly machine: number;
      readonly more: number;
      readonly spare: boolean;
      readonly lost: boolean;
    }
  | { readonly do: "return"; readonly machine: number; readonly lost: boolean }
  | { readonly do: "wipe"; readonly machine: number };

const machine = fc.nat({ max: NAMES.length - 1 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("join", "crash", "repeat", "stale"), machine }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("use"), machine }) },
  {
    weight: 9,
    arbitrary: fc.record({
      do: fc.constant("ask"),
      machine,
      more: fc.integer({ min: 1, max: 6 }),
      spare: fc.boolean(),
      lost: fc.boolean(),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("return"), machine, lost: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("wipe"), machine }) },
) as fc.Arbitrary<Step>;

/** A machine that follows the rules: it stops spending before it returns, and spends only what an answer granted. */
interface Member {
  readonly id: string;
  connection: string;
  generation: string;
  held: number;
  used: number;
}

interface GrantCall {
  readonly id: string;
  readonly connection: string;
  readonly generation: string;
  readonly asks: readonly object[];
}

/** The machines, and what the store must hold of them. */
class World {
  readonly members: Member[] = NAMES.map((name) => ({
    id: name,
    connection: "",
    generation: "",
    held: 0,
    used: 0,
  }));
  /** What the store says each machine was granted. */
  stored = new Map<string, number>();
  /** The machines that reported in the store's generation. */
  reported = new Set<string>();
  generation: string | null = null;
  last: { readonly call: GrantCall; readonly member: Member } | null = null;
  #names = 0;
  readonly #server: StoreServer;
  readonly #client: StoreClient;
  readonly #prefix: string;

  constructor(server: StoreServer, client: StoreClient, prefix: string) {
    this.#server = server;
    this.#client = client;
    this.#prefix = prefix;
  }

  async run(step: Step): Promise<void> {
    const member = this.members[step.machine];
    if (member === undefined) return;
    switch (step.do) {
      case "join":
        return this.#join(member);
      case "wipe":
        await this.#wipe();
        return this.#join(member);
      case "crash":
        // It starts again with what its journal says.
        member.held = member.used;
        return this.#join(member);
      case "use":
        if (member.used < member.held) member.used += 1;
        return;
      case "ask":
        return this.#ask(member, member.held, member.used + step.more, step.spare, step.lost);
      case "return":
        member.held = member.used;
        return this.#ask(member, member.held, 0, false, step.lost);
      case "repeat":
        return this.#repeat();
      case "stale":
        return this.#stale(member);
    }
  }

  async #wipe(): Promise<void> {
    await this.#server.admin(["DEL", ...["generation", "machines", "window"].map((name) => this.#key(name))]);
    this.stored = new Map();
    this.reported = new Set();
    this.generation = null;
  }

  async #join(member: Member): Promise<void> {
    this.#names += 1;
    const name = `${member.id}${this.#names}`;
    const others = this.members.filter(({ id }) => id !== member.id);
    const call = {
      id: member.id,
      name: member.id,
      connection: name,
      timezone: "UTC",
      run: "run",
      append_only: true,
      connections: [member.connection, name],
      known: others.map(({ id }) => ({ id, name: id })),
      new_generation: `generation ${this.#names}`,
    };
    const keys = [this.#key("generation"), this.#key("machines")];
    const { generation } = parseReply(await this.#client.runScript(JOIN, keys, [JSON.stringify(call)]));
    this.generation ??= call.new_generation;
    // As if the time were over in which the other machines join again.
    await this.#server.admin(["HSET", this.#key("generation"), "settled", "0"]);
    expect(generation === this.generation, "a generation lasts until the store loses its data");
    member.connection = name;
    member.generation = this.generation;
    // The first call on a connection reports everything.
    await this.#ask(member, member.held, 0, false, false);
  }

  async #ask(member: Member, keep: number, need: number, spare: boolean, isLost: boolean): Promise<void> {
    const now = Date.now();
    const window = { start: now - HOUR, end: now + HOUR, expires: 0, is_concurrent: false };
    // Only one request waits, so it gets everything or nothing.
    const ask = {
      tool: "codex",
      keep,
      need,
      least: need,
      spare,
      used: member.used,
      held: 0,
      limit: LIMIT,
      ...window,
    };
    const { id, connection, generation } = member;
    const call = { id, connection, generation, keys: [], asks: [ask] };
    const reply = await this.#send(call);
    if (this.generation === null || generation !== this.generation) {
      expect(reply.problem !== undefined, "a machine that does not know of the loss must join again");
      return;
    }
    this.reported.add(id);
    const granted = this.#expected(member, keep, need, spare);
    this.stored.set(id, granted);
    expect(grantedIn(reply) === granted, `${grantedIn(reply)} were granted instead of ${granted}`);
    this.last = { call, member };
    if (!isLost) member.held = granted;
  }

  #expected({ id }: Member, keep: number, need: number, spare: boolean): number {
    let others = 0;
    for (const [other, granted] of this.stored) if (other !== id) others += granted;
    const room = LIMIT - others;
    const mayGrant = this.members.every((member) => this.reported.has(member.id));
    if (!mayGrant || need <= keep || need > room) return keep;
    return spare ? need + Math.floor((room - need) / 8) : need;
  }

  /** The network delivers a call twice. */
  async #repeat(): Promise<void> {
    if (this.last === null) return;
    const { call, member } = this.last;
    if (call.connection !== member.connection || call.generation !== this.generation) return;
    const before = await this.#window();
    await this.#send(call);
    expect(isDeepStrictEqual(await this.#window(), before), "a repeated call changes nothing");
  }

  /** A call of an older connection arrives late. */
  async #stale(member: Member): Promise<void> {
    const before = await this.#window();
    const window = { start: 0, end: 9e15, expires: 0 };
    const ask = {
      tool: "codex",
      keep: 0,
      need: LIMIT,
      least: 1,
      spare: true,
      used: 0,
      limit: LIMIT,
      ...window,
    };
    const reply = await this.#send({
      id: member.id,
      connection: "an older one",
      generation: member.generation,
      asks: [ask],
    });
    expect(reply.problem !== undefined, "a late call is refused");
    expect(isDeepStrictEqual(await this.#window(), before), "a late call changes nothing");
  }

  async #send(call: GrantCall): Promise<Reply> {
    const keys = [this.#key("generation"), this.#key("machines"), this.#key("window")];
    return parseReply(await this.#client.runScript(GRANT, keys, [JSON.stringify(call)]));
  }

  async #window(): Promise<object> {
    const flat = asList(await this.#client.call("HGETALL", this.#key("window"))).map(String);
    return Object.fromEntries(flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? ""]] : [])));
  }

  #key(name: string): string {
    return `${this.#prefix}:${name}`;
  }
}

/** Throws, so that fast-check finds the shortest way to fail. */
function expect(holds: boolean, what: string): void {
  if (!holds) throw new Error(`not so: ${what}`);
}

function grantedIn(reply: Reply): unknown {
  return asFields(asList(reply.answers)[0]).granted;
}

t.test(
  "with calls that are lost, late or repeated, the machines together never hold more than the limit",
  { skip: missingStore() ?? false },
  async (t) => {
    const server = await emptyStore();
    const store = {
      url: `redis://127.0.0.1:${server.port}`,
      username: server.username,
      password: null,
      authority: null,
      prefix: "keybearer",
    };
    const { signal } = new AbortController();
    const client = await StoreClient.open(store, new Secret(server.password), signal, () => {});
    t.teardown(() => client.destroy());
    let worlds = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        worlds += 1;
        const world = new World(server, client, `keybearer:${worlds}`);
        for (const machine of NAMES.keys()) await world.run({ do: "join", machine });
        for (const next of steps) {
          await world.run(next);
          const held = world.members.reduce((sum, member) => sum + member.held, 0);
          expect(held <= LIMIT, `${held} are held`);
        }
        // Nothing is left behind: after everything came back, one machine can have all the rest.
        for (const machine of NAMES.keys()) await world.run({ do: "join", machine });
        for (const machine of NAMES.keys()) await world.run({ do: "return", machine, lost: false });
        const used = world.members.reduce((sum, member) => sum + member.used, 0);
        await world.run({ do: "ask", machine: 0, more: LIMIT - used, spare: false, lost: false });
        const [first] = world.members;
        const others = used - (first?.used ?? 0);
        expect(first?.held === LIMIT - others, `${first?.held} can be had, ${others} are used`);
      }),
      { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 60, 600) },
    );
  },
);
