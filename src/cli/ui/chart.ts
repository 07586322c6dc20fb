const BLOCKS = "▁▂▃▄▅▆▇█";
const ASCII_BLOCKS = "_.-=+*#@";

/** One character per value; zero is a blank. */
export function sparkline(values: readonly number[], utf8: boolean): string {
  const max = Math.max(...values, 0);
  const steps = utf8 ? BLOCKS : ASCII_BLOCKS;
  return values
    .map((value) => {
      if (value <= 0 || max === 0) return " ";
      return steps.charAt(Math.min(steps.length - 1, Math.floor((value / max) * steps.length)));
    })
    .join("");
}

const EIGHTHS = " ▏▎▍▌▋▊▉█";

/** A horizontal bar, `width` columns long for `max`. */
export function bar(value: number, max: number, width: number, utf8: boolean): string {
  if (value <= 0 || max <= 0) return "";
  const length = (value / max) * width;
  if (!utf8) return "#".repeat(Math.max(1, Math.round(length)));
  const whole = Math.floor(length);
  const rest = EIGHTHS.charAt(Math.floor((length - whole) * 8));
  const drawn = `${"█".repeat(whole)}${rest === " " ? "" : rest}`;
  return drawn === "" ? "▏" : drawn;
}
