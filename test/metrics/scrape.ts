import { spawnSync } from "node:child_process";

/* The Prometheus text format, version 0.0.4, read by code that is not prom-client's. */

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)/gy;

export function parseScrape(text: string): Sample[] {
  return text
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map(parseSample);
}

function parseSample(line: string): Sample {
  const [, name = "", labelText = "", value = ""] = SAMPLE.exec(line) ?? [];
  if (name === "") throw new Error(`this is not a sample: ${line}`);
  const labels: Record<string, string> = {};
  let end = 0;
  for (const [whole, label = "", text = ""] of labelText.matchAll(LABEL)) {
    labels[label] = text.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped));
    end += whole.length;
  }
  if (end !== labelText.length) throw new Error(`these are not labels: ${labelText}`);
  return { name, labels, value: value === "+Inf" ? Number.POSITIVE_INFINITY : Number(value) };
}

/** What Prometheus would not accept, or is not done: names without their unit, types that do not fit, series that are there twice. */
export function findFaults(text: string): string[] {
  const faults: string[] = [];
  if (!text.endsWith("\n")) faults.push("the last line has no end");
  const types = new Map(
    [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => [name, type]),
  );
  const helps = new Set([...text.matchAll(/^# HELP (\S+) \S/gm)].map(([, name]) => name));
  const seen = new Set<string>();
  const buckets = new Map<string, { at: number; count: number }>();
  for (const { name, labels, value } of parseScrape(text)) {
    const family = types.has(name) ? name : name.replace(/_(?:bucket|sum|count)$/, "");
    const type = types.get(family);
    if (type === undefined) faults.push(`${name} has no type`);
    if (!helps.has(family)) faults.push(`${family} has no help`);
    if (Number.isNaN(value)) faults.push(`${name} is not a number`);
    if ((type === "counter") !== name.endsWith("_total")) faults.push(`${name} is a ${type}`);
    if (value < 0) faults.push(`${name} is less than 0`);
    const series = `${name} ${JSON.stringify(Object.entries(labels).sort())}`;
    if (seen.has(series)) faults.push(`${series} is there twice`);
    seen.add(series);
    if (!name.endsWith("_bucket")) continue;
    const { le = "", ...rest } = labels;
    const histogram = `${name} ${JSON.stringify(Object.entries(rest).sort())}`;
    const before = buckets.get(histogram) ?? { at: Number.NEGATIVE_INFINITY, count: 0 };
    const at = le === "+Inf" ? Number.POSITIVE_INFINITY : Number(le);
    if (!(at > before.at) || value < before.count) faults.push(`${series} is out of order`);
    buckets.set(histogram, { at, count: value });
  }
  for (const [histogram, { at }] of buckets)
    if (at !== Number.POSITIVE_INFINITY) faults.push(`${histogram} has no +Inf`);
  return faults;
}

/** Prometheus' own check, from the Debian package prometheus. null: it is not installed. */
export function checkWithPromtool(
  text: string,
): { readonly code: number | null; readonly said: string } | null {
  const { error, status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], {
    input: text,
    encoding: "utf8",
  });
  return error === undefined ? { code: status, said: stdout + stderr } : null;
}
