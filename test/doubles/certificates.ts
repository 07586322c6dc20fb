// Certificates for gateways with TLS, good and bad, made with openssl.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";

export interface Certificate {
  readonly key: string;
  readonly cert: string;
}

interface Certificates {
  /** The file with the authority's certificate, for ca_file. */
  readonly authority: string;
  /** From that authority, for 127.0.0.1 and localhost. */
  readonly good: Certificate;
  /** From that authority, for another name. */
  readonly otherName: Certificate;
  /** From no authority, for 127.0.0.1. */
  readonly selfSigned: Certificate;
  /** From that authority, for 127.0.0.1, until yesterday. null where this openssl makes none. */
  expired(): Certificate | null;
}

const NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/** null, and skipped, where there is no openssl on this machine. */
export function makeCertificates(t: Test): Certificates | null {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
  } catch {
    t.skip("there is no openssl here to make certificates with", async () => {});
    return null;
  }
  const folder = mkdtempSync(join(tmpdir(), "kb-certs-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const openssl = (words: string) =>
    execFileSync("openssl", words.split(" "), { cwd: folder, stdio: "pipe" });
  const read = (name: string): Certificate => ({
    key: readFileSync(join(folder, `${name}.key`), "utf8"),
    cert: readFileSync(join(folder, `${name}.pem`), "utf8"),
  });
  const signItself = (name: string, subject: string): void => {
    openssl(`req -x509 ${NEW_KEY} -keyout ${name}.key -out ${name}.pem -days 2 ${subject}`);
  };
  const issue = (name: string, subjects: string, days = 2): Certificate => {
    writeFileSync(join(folder, `${name}.ext`), `subjectAltName=${subjects}\n`);
    openssl(`req ${NEW_KEY} -keyout ${name}.key -out ${name}.csr -subj /CN=${name}`);
    const authority = "-CA ca.pem -CAkey ca.key -CAcreateserial";
    openssl(`x509 -req -in ${name}.csr ${authority} -days ${days} -out ${name}.pem -extfile ${name}.ext`);
    return read(name);
  };
  signItself("ca", "-subj /CN=test-authority");
  signItself("self", "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1");
  return {
    authority: join(folder, "ca.pem"),
    good: issue("good", "IP:127.0.0.1,DNS:localhost"),
    otherName: issue("other", "DNS:gateway.example.com"),
    selfSigned: read("self"),
    expired() {
      try {
        return issue("expired", "IP:127.0.0.1", -1);
      } catch {
        return null;
      }
    },
  };
}
