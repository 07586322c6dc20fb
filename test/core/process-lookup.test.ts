import { spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import t from "tap";
import { Connections } from "../../src/core/connections.ts";
import { ProcessLookup, readPs, startTicks } from "../../src/core/process-lookup.ts";

t.test("the start of a process is read behind its name, whatever that is", async (t) => {
  const rest = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 8472 12345";
  for (const name of ["node", "a b", ") S 1 (", "((", "1) 2) 3"])
    t.equal(startTicks(`7 (${name}) ${rest}`), 8472, name);
  t.ok(Number.isNaN(startTicks("7 (node) S 1")));
  t.ok(Number.isNaN(startTicks("")));
});

t.test("a row of ps has user, start and program", async (t) => {
  const startedAt = new Date(2026, 10, 7, 9, 12, 44).getTime() / 1000;
  const found = readPs("  501 Sat Nov  7 09:12:44 2026     /Applications/My App/app \n");
  t.same(found, { user: 501, process: { startedAt, program: "/Applications/My App/app" } });
  for (const text of [
    "",
    "501 /bin/sh",
    "501 Sat Nov  7 09:12:44 2026 sh",
    "x Sat Nov  7 09:12:44 2026 /bin/sh",
  ])
    t.equal(readPs(text), null, text);
});

t.test(
  "the processes of connections that open at once are found together",
  { skip: process.platform === "linux" ? false : "the lookup has been run on Linux only" },
  async (t) => {
    const server = createServer().listen(0, "127.0.0.1");
    t.teardown(() => server.close());
    await once(server, "listening");
    const code = `require("net").connect(${(server.address() as AddressInfo).port}, "127.0.0.1").write(String(process.pid));`;
    const lookup = new ProcessLookup(new Connections(), { error: () => {} });
    const found = new Promise<(readonly [string, number | undefined])[]>((resolve) => {
      const all: Promise<readonly [string, number | undefined]>[] = [];
      server.on("connection", (socket: Socket) => {
        t.teardown(() => socket.destroy());
        const said = once(socket, "data").then(([data]) => String(data));
        all.push(Promise.all([said, lookup.of(socket).then((owner) => owner?.pid)]));
        if (all.length === 4) resolve(Promise.all(all));
      });
    });
    for (let number = 0; number < 4; number += 1) {
      const child = spawn(process.execPath, ["-e", code], { env: {}, stdio: "inherit" });
      t.teardown(() => child.kill("SIGKILL"));
    }
    for (const [said, pid] of await found) t.equal(String(pid), said);
  },
);
