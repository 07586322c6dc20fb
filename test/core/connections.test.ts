import t from "tap";
import { findRow } from "../../src/core/connections.ts";

t.test("the row of a connection is found in the kernel's table", async (t) => {
  const head =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
  const row = (from: string, to: string, uid: number, inode: number) =>
    `   1: ${from} ${to} 01 00000000:00000000 00:00000000 00000000 ${String(uid).padStart(5)}        0 ${inode} 1 0000000000000000 20 4 30 10 -1\n`;
  const ends = { address: "127.0.0.1", port: 0xd2ec, toAddress: "127.0.0.1", toPort: 5398 };
  const [theirs, ours] = ["0100007F:D2EC", "0100007F:1516"];
  t.same(
    findRow(head + row(ours, theirs, 1, 9) + row(theirs, ours, 1000, 8), ends),
    { user: 1000, inode: "8" },
    "their own end",
  );
  t.equal(findRow(head + row(ours, theirs, 1, 9), ends), null, "not ours");
  t.equal(findRow(head + row(theirs, ours, 0, 0), ends), null, "no process holds it: that is not root's");
  const mapped = (end: string) => `0000000000000000FFFF0000${end}`;
  t.same(
    findRow(row(mapped(theirs), mapped(ours), 7, 8), ends),
    { user: 7, inode: "8" },
    "an IPv6 socket that calls IPv4",
  );
  const one = "00000000000000000000000001000000";
  const six = { ...ends, address: "::1", toAddress: "::1" };
  t.same(findRow(row(`${one}:D2EC`, `${one}:1516`, 65534, 8), six), { user: 65534, inode: "8" });
  t.equal(findRow("", six), null);
});
