import { readKey } from "../../src/keys/sources.ts";

// Run by a test with something to read on its standard input: reports what a command that reads its own gets.
const reading = await readKey({ kind: "command", argv: ["/bin/cat"] }, { env: {}, limit: 60_000 });
process.send?.(reading.ok ? `a key: ${reading.key.reveal()}` : reading.problem);
process.disconnect();
