import { type EditResult, readForEdit, setValue } from "./edit.ts";

/** Sets the hash of the token for metrics. Switches metrics on if they are off. */
export function setMetricsToken(text: string, hash: string): EditResult {
  // The file keeps hashes only: a token that came here by mistake must not be written.
  if (!/^sha256:[0-9a-f]{64}$/.test(hash)) throw new TypeError("a token is kept as sha256:<64 hex digits>");
  const source = readForEdit(text);
  if (!source.ok) return source;
  const isMap = typeof source.value.metrics === "object";
  return isMap
    ? setValue(text, ["metrics", "token"], hash)
    : setValue(text, ["metrics"], { listen: "localhost:5399", token: hash });
}
