import { get } from "node:http";

/** Whether keybearer answers `/healthz` at every one of these addresses, as `127.0.0.1:5397` and `[::1]:5397`. */
export async function answersAt(addresses: readonly string[], limitMs: number): Promise<boolean> {
  const answers = await Promise.all(addresses.map((address) => answers200(address, limitMs)));
  return answers.length > 0 && answers.every(Boolean);
}

function answers200(address: string, limitMs: number): Promise<boolean> {
  return new Promise((done) => {
    // A connection of its own each time: one that is kept open says nothing about whether new ones are accepted.
    const request = get(`http://${address}/healthz`, { agent: false }, (response) => {
      clearTimeout(limit);
      response.resume();
      response.once("close", () => done(response.statusCode === 200));
    });
    const limit = setTimeout(() => request.destroy(new Error("late")), limitMs);
    request.once("error", () => {
      clearTimeout(limit);
      done(false);
    });
  });
}
