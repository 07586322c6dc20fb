import { once } from "node:events";
import t from "tap";
import { systemClock } from "../../src/clock.ts";
import type { Call } from "../../src/proxy/call.ts";
import type { Exchange } from "../../src/proxy/exchange.ts";
import { Lines } from "../../src/proxy/lines.ts";
import { WholePassage } from "../../src/proxy/whole-passage.ts";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { say, settledAs } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";

t.test("a gateway that ends or resets while a slow client is waited for harms nobody", async (t) => {
  for (const how of ["end", "reset"] as const) {
    const gateway = await startRawGateway(t, (call) => call.send("HTTP/1.1 200 OK\r\n\r\n"));
    const address = { host: `127.0.0.1:${gateway.port}`, hostname: "127.0.0.1", port: gateway.port };
    const to = { ...address, origin: gateway.origin, secure: false, prefix: "", cut: 0 };
    let pieces = 0;
    let over = "";
    const told: Partial<Call> = {
      onConnected: () => {},
      onAnswer: () => {},
      onPiece: () => {
        pieces += 1;
        return false;
      },
      onEnd: () => {
        over = "end";
      },
      onBroken: () => {
        over = "broken";
      },
    };
    const passage = new WholePassage(
      new Lines(systemClock, to, { rejectUnauthorized: true }, null),
      told as Call,
    );
    passage.send({
      req: { method: "GET" },
      path: "/",
      headers: [],
      body: [],
      asking: null,
    } as unknown as Exchange);
    await until("it is asked", () => gateway.calls.length === 1);
    const socket = gateway.calls[0]?.socket;
    if (socket === undefined) return void t.fail("nobody asked");
    socket.write(Buffer.alloc(20_000));
    await until("a piece is there", () => pieces > 0);
    socket.write(Buffer.alloc(20_000));
    await until("all is sent", () => socket.writableLength === 0);
    const left = once(socket, how === "end" ? "finish" : "close");
    if (how === "end") socket.end();
    else socket.resetAndDestroy();
    await left;
    // The system has it by now, and each turn of the event loop asks the system.
    for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    await until("all of it is told", () => {
      passage.resume();
      return over !== "";
    });
    if (how === "end") t.equal(over, "end");
  }
});

t.test("the head of an answer passes as it is", async (t) => {
  const words = Buffer.from("额度不足 é").toString("latin1");
  const heads: Record<string, string> = {
    "/v1/words": `HTTP/1.1 200 ${words}\r\nContent-Length: 2\r\n\r\n{}`,
    "/v1/same": 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 5\r\n\r\n',
    "/v1/garbage": "SSH-2.0-OpenSSH\r\n",
    "/v1/two": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
  };
  const gateway = await startRawGateway(t, (call) =>
    call.send(Buffer.from(heads[call.target] ?? "", "latin1")),
  );
  const one = await startWithOneTool(t, gateway.origin);
  const get = (path: string) => head(`GET ${path}`, { Host: one.host, Authorization: `Bearer ${one.token}` });
  const ask = (path: string) => say(t, one.port, get(path));
  t.equal((await ask("/v1/words")).reason, words);
  const client = await openRaw(t, one.port);
  client.send(get("/v1/same"));
  await client.until("304 Not Modified");
  await settledAs(t, one, "/v1/same", [{ end: "complete", status: 304 }]);
  for (const path of ["/v1/garbage", "/v1/two"]) t.match((await ask(path)).body, "is not HTTP");
  await stillHealthy(t, one, [one.key, one.token]);
});
