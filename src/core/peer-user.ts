import type { Socket } from "node:net";
import { release } from "node:os";
import { isDeepStrictEqual } from "node:util";
import { type Connections, HAS_TABLE } from "./connections.ts";

/** The OS user at the other end of a connection: the one keybearer runs as, another one, or unknown because it was closed. */
type Peer = "ours" | "other-user" | "gone";

export class PeerLookup {
  /** Whether the system shows the user of every connection. Where it does not, every peer counts as ours. */
  readonly supported: boolean;
  readonly #connections: Connections;
  readonly #isWsl: boolean;
  #known = new WeakMap<Socket, Promise<Peer>>();
  /** The users that the system service serves; null: only the one it runs as. */
  #owners: readonly number[] | null = null;

  constructor(connections: Connections) {
    this.#connections = connections;
    this.#isWsl = /microsoft/i.test(release());
    this.supported = HAS_TABLE && !this.#isWsl;
  }

  /** Serves these users, and the one it runs as; null: only that one. A connection that is open is judged again. */
  serve(owners: readonly number[] | null): void {
    if (isDeepStrictEqual(owners, this.#owners)) return;
    this.#owners = owners;
    this.#known = new WeakMap();
  }

  /** null: the table does not list the connection. */
  async userOf(socket: Socket): Promise<number | null> {
    return (await this.#connections.of(socket))?.user ?? null;
  }

  /** Looked up once per connection. */
  of(socket: Socket): Promise<Peer> {
    let peer = this.#known.get(socket);
    if (peer === undefined) {
      peer = this.#lookUp(socket);
      this.#known.set(socket, peer);
    }
    return peer;
  }

  async #lookUp(socket: Socket): Promise<Peer> {
    if (this.#owners !== null) return this.#lookUpOwner(socket, this.#owners);
    if (!HAS_TABLE) return "ours";
    const user = (await this.#connections.of(socket))?.user ?? null;
    // Under WSL a Windows browser arrives through a relay that runs as root, or from outside this Linux.
    if (this.#isWsl && (user === null || user === 0)) return "ours";
    if (user === null) return "gone";
    // In a user namespace every other user appears as the overflow user, which is not ours either.
    return user === process.geteuid?.() ? "ours" : "other-user";
  }

  /** Whose connection it is must be certain: other users are why there is a system service. */
  async #lookUpOwner(socket: Socket, owners: readonly number[]): Promise<Peer> {
    const user = await this.userOf(socket);
    if (user === null) return socket.destroyed ? "gone" : "other-user";
    // The daemon asks itself whether it answers.
    return owners.includes(user) || user === process.geteuid?.() ? "ours" : "other-user";
  }
}
