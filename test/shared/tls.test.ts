import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, connect } from "node:net";
import { createServer } from "node:tls";
import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import { StoreClient } from "../../src/shared/connection.ts";
import { type Certificate, makeCertificates } from "../doubles/certificates.ts";
import { emptyStore, missingStore, type StoreServer } from "./redis.ts";

/** A port in front of the store that speaks TLS. */
async function tlsPort(t: Test, store: StoreServer, certificate: Certificate): Promise<number> {
  const server = createServer(certificate, (socket) => {
    const target = connect(store.port, "127.0.0.1");
    socket.on("error", () => target.destroy());
    target.on("error", () => socket.destroy());
    socket.pipe(target).pipe(socket);
  });
  // A client that does not accept the certificate ends the handshake.
  server.on("tlsClientError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

t.test(
  "the store's certificate decides whether the password is sent",
  { skip: missingStore() ?? false },
  async (t) => {
    const certificates = makeCertificates(t);
    if (certificates === null) return;
    const store = await emptyStore();
    const file = certificates.authority;
    const known = { file, pem: readFileSync(file, "utf8") };
    const answer = async (certificate: Certificate, authority: typeof known | null) => {
      const url = `rediss://127.0.0.1:${await tlsPort(t, store, certificate)}`;
      const settings = { url, username: store.username, password: null, authority, prefix: "keybearer" };
      const attempt = new AbortController();
      try {
        const password = new Secret(store.password);
        const client = await StoreClient.open(settings, password, attempt.signal, () => {});
        return String(await client.call("INFO")).includes("run_id") ? "connected" : "no answer";
      } catch (error) {
        return String((error as { code?: string }).code ?? error);
      } finally {
        attempt.abort();
      }
    };
    t.equal(await answer(certificates.good, known), "connected");
    t.match(
      await answer(certificates.good, null),
      /UNABLE_TO_VERIFY|SELF_SIGNED/,
      "from an unknown authority",
    );
    t.equal(await answer(certificates.otherName, known), "ERR_TLS_CERT_ALTNAME_INVALID", "for another name");
    t.match(await answer(certificates.selfSigned, known), /SELF_SIGNED/, "from no authority");
  },
);
