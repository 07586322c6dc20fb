import { stdio } from "./stdio.ts";
import { readScreen } from "./terminal.ts";
import { printable, truncate } from "./text.ts";

/** One line on stderr that changes while a command works. Only on a terminal. */
export class ProgressLine {
  #shown = "";

  show(text: string): void {
    if (stdio().stderr.isTTY !== true || text === this.#shown) return;
    this.#shown = text;
    // A line as wide as the terminal would wrap on some, and could not be erased.
    const { width } = readScreen(stdio().env, stdio().stderr.columns);
    stdio().stderr.write(`\r\u001b[K${truncate(printable(text), width - 1)}`);
  }

  clear(): void {
    if (this.#shown === "") return;
    this.#shown = "";
    stdio().stderr.write("\r\u001b[K");
  }
}
