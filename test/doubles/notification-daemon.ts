// A session bus of its own, and on it a program that shows notifications: it keeps them.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import type { Test } from "tap";

export interface ShownNotification {
  readonly app: string;
  readonly title: string;
  readonly body: string;
  /** 0, 1 or 2; null: none was sent. */
  readonly urgency: number | null;
}

export interface SessionBus {
  /** For DBUS_SESSION_BUS_ADDRESS. */
  readonly address: string;
}

/** null, and skipped, where there is no dbus-daemon. */
export async function startSessionBus(t: Test, socket: string): Promise<SessionBus | null> {
  try {
    execFileSync("dbus-daemon", ["--version"], { stdio: "ignore" });
  } catch {
    t.skip("there is no dbus-daemon here, so nothing shows that notifications arrive", async () => {});
    return null;
  }
  const args = ["--session", "--nofork", "--print-address=1", `--address=unix:path=${socket}`];
  const daemon: ChildProcess = spawn("dbus-daemon", args, { stdio: ["ignore", "pipe", "ignore"] });
  t.teardown(() => void daemon.kill());
  if (daemon.stdout === null) throw new Error("there is no pipe");
  const [address] = (await once(createInterface(daemon.stdout), "line")) as [string];
  return { address };
}

/** Owns org.freedesktop.Notifications on the bus until the test ends. */
export async function showNotifications(t: Test, socket: string): Promise<readonly ShownNotification[]> {
  const shown: ShownNotification[] = [];
  const bus = await BusConnection.open(socket);
  t.teardown(() => bus.close());
  bus.onCall = (member, body) => {
    // notify-send asks for it first, and ends without it.
    if (member === "GetServerInformation")
      return { signature: "ssss", body: texts("keybearer", "test", "1", "1.2") };
    if (member !== "Notify") return null;
    shown.push(readNotify(body));
    return { signature: "u", body: uint32(1) };
  };
  await bus.call("Hello", "", Buffer.alloc(0));
  const flags = 4;
  const name = text("org.freedesktop.Notifications");
  await bus.call("RequestName", "su", Buffer.concat([name, padding(name.length, 4), uint32(flags)]));
  return shown;
}

const CALL = 1;
const RETURN = 2;
const ERROR = 3;

interface Answer {
  readonly signature: string;
  readonly body: Buffer;
}

/** As much of the D-Bus protocol as is needed here, in little endian. */
class BusConnection {
  onCall: (member: string, body: Buffer) => Answer | null = () => null;
  readonly #socket: Socket;
  readonly #replies = new EventEmitter();
  #rest: Buffer = Buffer.alloc(0);
  #serial = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
  }

  static async open(path: string): Promise<BusConnection> {
    const socket = connect(path);
    await once(socket, "connect");
    const user = Buffer.from(String(process.getuid?.() ?? 0)).toString("hex");
    socket.write(`\0AUTH EXTERNAL ${user}\r\n`);
    await once(socket, "data");
    socket.write("BEGIN\r\n");
    const bus = new BusConnection(socket);
    socket.on("data", (chunk: Buffer) => bus.#read(chunk));
    socket.on("error", () => {});
    return bus;
  }

  close(): void {
    this.#socket.destroy();
  }

  /** A method of the bus itself. */
  async call(member: string, signature: string, body: Buffer): Promise<void> {
    const bus = "org.freedesktop.DBus";
    const fields = [
      field(1, "o", "/org/freedesktop/DBus"),
      field(2, "s", bus),
      field(3, "s", member),
      field(6, "s", bus),
    ];
    const serial = this.#send(CALL, signature === "" ? fields : [...fields, field(8, "g", signature)], body);
    await once(this.#replies, String(serial));
  }

  #send(type: number, fields: readonly Buffer[], body: Buffer): number {
    this.#serial += 1;
    const list = fields.reduce(
      (all, one) => Buffer.concat([all, padding(all.length, 8), one]),
      Buffer.alloc(0),
    );
    const head = Buffer.concat([
      Buffer.from(["l".charCodeAt(0), type, 0, 1]),
      uint32(body.length),
      uint32(this.#serial),
      uint32(list.length),
      list,
    ]);
    this.#socket.write(Buffer.concat([head, padding(head.length, 8), body]));
    return this.#serial;
  }

  #read(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    while (this.#rest.length >= 16) {
      const listLength = this.#rest.readUInt32LE(12);
      const bodyAt = Math.ceil((16 + listLength) / 8) * 8;
      const end = bodyAt + this.#rest.readUInt32LE(4);
      if (this.#rest.length < end) return;
      const message = this.#rest.subarray(0, end);
      this.#rest = this.#rest.subarray(end);
      this.#take(message, 16 + listLength, bodyAt);
    }
  }

  #take(message: Buffer, listEnd: number, bodyAt: number): void {
    const type = message[1];
    const serial = message.readUInt32LE(8);
    const fields = readFields(message, listEnd);
    if (type === RETURN || type === ERROR) this.#replies.emit(String(fields.get(5)));
    if (type !== CALL) return;
    const answer = this.onCall(String(fields.get(3)), message.subarray(bodyAt));
    const to = [field(5, "u", serial), field(6, "s", String(fields.get(7)))];
    if (answer === null)
      this.#send(ERROR, [...to, field(4, "s", "org.freedesktop.DBus.Error.UnknownMethod")], Buffer.alloc(0));
    else this.#send(RETURN, [...to, field(8, "g", answer.signature)], answer.body);
  }
}

function readFields(message: Buffer, end: number): Map<number, string | number> {
  const fields = new Map<number, string | number>();
  for (let at = 16; at < end; at = Math.ceil(at / 8) * 8) {
    const code = message[at] ?? 0;
    const signature = String.fromCharCode(message[at + 2] ?? 0);
    const valueAt = at + 4;
    if (signature === "u") {
      fields.set(code, message.readUInt32LE(valueAt));
      at = valueAt + 4;
    } else if (signature === "g") at = valueAt + 1 + (message[valueAt] ?? 0) + 1;
    else {
      const length = message.readUInt32LE(valueAt);
      fields.set(code, message.toString("utf8", valueAt + 4, valueAt + 4 + length));
      at = valueAt + 4 + length + 1;
    }
  }
  return fields;
}

/** susssasa{sv}i */
function readNotify(body: Buffer): ShownNotification {
  let at = 0;
  const align = () => {
    at = Math.ceil(at / 4) * 4;
  };
  const readText = () => {
    align();
    const length = body.readUInt32LE(at);
    const value = body.toString("utf8", at + 4, at + 4 + length);
    at += 4 + length + 1;
    return value;
  };
  const app = readText();
  align();
  at += 4;
  readText();
  const title = readText();
  const text = readText();
  const hints = body.indexOf("urgency\0\x01y\0", at);
  const urgency = hints === -1 ? null : (body[hints + "urgency\0\x01y\0".length] ?? null);
  return { app, title, body: text, urgency };
}

function field(code: number, type: "s" | "o" | "g" | "u", value: string | number): Buffer {
  const head = Buffer.from([code, 1, type.charCodeAt(0), 0]);
  if (typeof value === "number") return Buffer.concat([head, uint32(value)]);
  if (type === "g") return Buffer.concat([head, Buffer.from([value.length]), Buffer.from(`${value}\0`)]);
  return Buffer.concat([head, text(value)]);
}

function text(value: string): Buffer {
  return Buffer.concat([uint32(Buffer.byteLength(value)), Buffer.from(`${value}\0`)]);
}

function texts(...values: readonly string[]): Buffer {
  return values.reduce(
    (all, one) => Buffer.concat([all, padding(all.length, 4), text(one)]),
    Buffer.alloc(0),
  );
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function padding(length: number, to: number): Buffer {
  return Buffer.alloc((to - (length % to)) % to);
}
