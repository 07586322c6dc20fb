import { BODY_SIZES } from "../upstream/bodies.ts";
import { houseLines } from "./house-lines.ts";
import { machineInWords } from "./machine.ts";
import { isMet, isWide, RATIO_NAMES, type RatioName, type Ratios, TARGETS } from "./ratios.ts";
import type { Measured, Setting } from "./result.ts";
import { added, slicesOf } from "./slices.ts";
import { type Spread, spread } from "./statistics.ts";

/** For people: everything that was measured, medians with the least and the most of all rounds behind them. */
export function inWords(setting: Setting, measured: Measured, ratios: Ratios): string {
  return [
    ...headLines(setting),
    ...ratioLines(ratios),
    ...requestLines(measured),
    ...streamLines(measured),
    ...processLines(measured),
    ...houseLines(measured),
    "",
  ].join("\n");
}

function headLines({ machine, date, rounds, secondsEach, ...setting }: Setting): string[] {
  const who = setting.contenders.map(({ name, title, version, bodiesUnchanged }) => [
    name,
    version,
    `${title}${bodiesUnchanged ? "" : " (writes bodies anew)"}`,
  ]);
  return [
    `${machineInWords(machine)}; ${date}${setting.quick ? "; a quick run" : ""}`,
    `load by ${setting.loadGenerator}, upstream ${setting.upstream}, all on this machine's ${machine.cores} cores; ${rounds} ${rounds === 1 ? "round" : "rounds"} of slices of ${secondsEach} s, in turn`,
    ...othersLines(setting.othersShare, machine),
    "",
    ...columns(who),
    ...setting.missing.map(({ name, why }) => `not measured: ${name}, because ${why}`),
  ];
}

/** Why two runs may disagree. Only the load before, where nothing tells what others took meanwhile. */
function othersLines(share: number | null, { loadBefore, cores }: Setting["machine"]): string[] {
  if (share !== null)
    return share < 0.05
      ? []
      : [`others took ${(share * 100).toFixed(0)} % of the processors meanwhile: the numbers are worth less`];
  return loadBefore > cores / 4
    ? [`others were at work before it began (load ${loadBefore.toFixed(1)}): the numbers are worth less`]
    : [];
}

function ratioLines(ratios: Ratios): string[] {
  const rows = RATIO_NAMES.map((name) => {
    const value = ratios[name];
    const met = isMet(name, value);
    const words = met === null ? "" : met ? "met" : "not met";
    const wide =
      value !== null && isWide(value) ? "its single measurements differ by more than 15 % either way" : "";
    return [name, ranged(value, 2), targetWords(name), words, wide];
  });
  return ["", ...columns([["ratio", "median (least to most)", "target", "", ""], ...rows])];
}

function targetWords(name: RatioName): string {
  const target = TARGETS[name];
  if (target === undefined) return "";
  return "atLeast" in target ? `at least ${target.atLeast}` : `at most ${target.atMost}`;
}

function requestLines({ loads }: Measured): string[] {
  const rows = loads.map(({ candidate, connections, body, slices }) => {
    const direct = slicesOf(loads, "direct", { connections, body });
    const over = (field: "p50Ms" | "p99Ms") => ranged(spread(added(slices, direct, field)), 2);
    const errors = slices.reduce((sum, slice) => sum + slice.errors, 0);
    return [
      ...[String(connections), `${BODY_SIZES[body]} B`, candidate],
      ...[ranged(spread(slices.map(({ rps }) => rps)), 0), over("p50Ms"), over("p99Ms")],
      ranged(spread(slices.flatMap(({ cpuMicroseconds }) => cpuMicroseconds ?? [])), 0),
      errors === 0 ? "" : `${errors} errors`,
    ];
  });
  const head = [
    "connections",
    "body",
    "",
    "requests/s",
    "added p50 ms",
    "added p99 ms",
    "CPU µs/request",
    "",
  ];
  return rows.length === 0 ? [] : ["", ...columns([head, ...rows.sort(byNumber)])];
}

function streamLines({ streams }: Measured): string[] {
  const rows = streams.map(({ candidate, streams, rounds }) => {
    const of = (field: "firstByteP50Ms" | "firstByteP99Ms" | "delayP50Ms" | "delayP99Ms" | "allOpenP99Ms") =>
      ranged(spread(rounds.flatMap((round) => round[field] ?? [])), 2);
    const broken = rounds.reduce((sum, round) => sum + round.broken, 0);
    return [
      ...[String(streams), candidate, of("firstByteP50Ms"), of("firstByteP99Ms")],
      ...[of("delayP50Ms"), of("delayP99Ms"), of("allOpenP99Ms"), broken === 0 ? "" : `${broken} broken`],
    ];
  });
  const head = [
    "streams",
    "",
    "first byte p50 ms",
    "p99 ms",
    "event delay p50 ms",
    "p99 ms",
    "p99 ms, all open",
    "",
  ];
  return rows.length === 0 ? [] : ["", ...columns([head, ...rows.sort(byNumber)])];
}

function processLines({ idle, starts, downloads, streams }: Measured): string[] {
  const names = [...new Set([...starts, ...idle, ...downloads].map(({ candidate }) => candidate))];
  const rows = names.map((name) => {
    const still = idle.find(({ candidate }) => candidate === name);
    const most = streams
      .filter(({ candidate }) => candidate === name)
      .sort((a, b) => b.streams - a.streams)[0];
    const held = (field: "rssDuring" | "rssAfter") =>
      inMegabytes(most?.rounds.flatMap((round) => round[field] ?? []) ?? []);
    const start = starts.find(({ candidate }) => candidate === name);
    const speed = downloads.find(({ candidate }) => candidate === name);
    return [
      ...[
        name,
        ranged(spread(start?.rounds ?? []), 0),
        inMegabytes(still === undefined ? [] : [still.rssBytes]),
      ],
      ...[held("rssDuring"), held("rssAfter")],
      still === undefined ? "" : ((still.cpuMs / still.seconds / 1000) * 100).toFixed(3),
      still?.wakeUpsPerSecond?.toFixed(1) ?? "",
      ranged(spread(speed?.rounds.map((bytes) => bytes / 1e6) ?? []), 0),
    ];
  });
  const head = [
    ...["", "start-up ms", "idle MB", "MB under most streams", "MB after"],
    ...["idle CPU %", "wake-ups/s", "100 MB answer, MB/s"],
  ];
  return rows.length === 0 ? [] : ["", ...columns([head, ...rows])];
}

function inMegabytes(bytes: readonly number[]): string {
  return ranged(spread(bytes.map((value) => value / 1e6)), 0);
}

/** `1234 (1200 to 1300)`; nothing where there is nothing. */
export function ranged(value: Spread | null, digits: number): string {
  if (value === null) return "";
  const [middle, least, most] = [value.median, value.least, value.most].map((one) => one.toFixed(digits));
  return least === most ? `${middle}` : `${middle} (${least} to ${most})`;
}

/** By the first columns, as numbers where they are numbers. */
function byNumber(one: readonly string[], other: readonly string[]): number {
  const [a = "", b = ""] = [one[0], other[0]];
  return (
    Number(a) - Number(b) || Number.parseInt(one[1] ?? "", 10) - Number.parseInt(other[1] ?? "", 10) || 0
  );
}

export function columns(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}
