import { useMemo } from "preact/hooks";
import { costInWords, duration, exact } from "../../../core/units.ts";
import { findMetering, isBilledLater } from "../../../metering/protocols.ts";
import { short } from "../../../usage/reports/format.ts";
import type { ShownRecord } from "../../api.ts";
import { clockInWords, dayOf } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Translate } from "../messages/messages.ts";

export type ColumnName =
  | "time"
  | "tool"
  | "model"
  | "end"
  | "input"
  | "output"
  | "first-byte"
  | "took"
  | "cost";

/** The lines of each cell. */
const COLUMNS: Readonly<Record<"wide" | "tight" | "narrow", readonly (readonly ColumnName[])[]>> = {
  wide: [["time"], ["tool"], ["model"], ["end"], ["input"], ["output"], ["first-byte"], ["took"], ["cost"]],
  tight: [["time"], ["tool"], ["model"], ["end"], ["input"], ["output"], ["cost"]],
  narrow: [
    ["time", "tool"],
    ["model", "end"],
    ["cost", "output"],
  ],
};

export function columnsFor(room: keyof typeof COLUMNS): readonly (readonly ColumnName[])[] {
  return COLUMNS[room];
}

interface RowProps {
  readonly record: ShownRecord;
  readonly columns: readonly (readonly ColumnName[])[];
  readonly place: number;
  readonly tabbable: boolean;
  readonly open: boolean;
  readonly onOpen: (id: string, place: number) => void;
  readonly onKeyDown: (event: KeyboardEvent, place: number) => void;
}

/** Nothing is compared below a row that is the same as before: while a person scrolls, most are. */
export function RecordRow(props: RowProps) {
  const { t } = useFrame();
  const { record, columns, place, tabbable, open, onOpen, onKeyDown } = props;
  return useMemo(() => rowOf(props, t), [record, columns, place, tabbable, open, onOpen, onKeyDown, t]);
}

/** The button of the first cell is as large as the row, so that a click anywhere opens it. */
function rowOf({ record, columns, place, tabbable, open, onOpen, onKeyDown }: RowProps, t: Translate) {
  return (
    <tr
      aria-rowindex={place + 2}
      data-place={place}
      data-open={open}
      data-end={isFailed(record) ? "gateway-failed" : (record.end ?? "running")}
    >
      {columns.map((names) => (
        <td key={names[0]} data-column={names[0]}>
          {names.map((name) =>
            name === "time" ? (
              <button
                key={name}
                type="button"
                tabIndex={tabbable ? 0 : -1}
                aria-expanded={open}
                onClick={() => onOpen(record.id, place)}
                onKeyDown={(event) => onKeyDown(event, place)}
              >
                {textOf(record, name, t)}
              </button>
            ) : (
              <span key={name} data-name={name}>
                {textOf(record, name, t)}
              </span>
            ),
          )}
        </td>
      ))}
    </tr>
  );
}

/** A complete response that is an error. The filter treats it like a broken one. */
function isFailed({ end, status }: ShownRecord): boolean {
  return end === "complete" && status !== null && status >= 400;
}

function textOf(record: ShownRecord, name: ColumnName, t: Translate): string {
  const since = (at: number | null) => (at === null ? "–" : duration(Math.max(0, at - record.started_at)));
  switch (name) {
    case "time":
      return `${dayOf(record.started_at).slice(5)} ${clockInWords(record.started_at)}`;
    case "tool":
      return record.tool ?? t("usage.nameless.tool");
    case "model":
      return record.model ?? record.model_answered ?? "–";
    case "end":
      return endInWords(record, t);
    case "input":
      return countOf(inputOf(record));
    case "output":
      return countOf(record.output_tokens);
    case "first-byte":
      return since(record.first_byte_at);
    case "took":
      return since(record.ended_at);
    case "cost":
      return costOf(record);
  }
}

/** A refused or free request, such as for the list of models, costs nothing. The cost of anything else is unknown. */
function costOf({ cost_microdollars: cost, end, method, endpoint }: ShownRecord): string {
  if (cost === null && (end === "refused" || isFree(method, endpoint))) return "–";
  return costInWords(cost);
}

export function isFree(method: string, endpoint: string): boolean {
  return findMetering(method, endpoint) === null && !isBilledLater(method, endpoint);
}

function inputOf(record: ShownRecord): number | null {
  const { input_tokens, cache_read_tokens, cache_write_tokens } = record;
  if (input_tokens === null && cache_read_tokens === null) return null;
  return (input_tokens ?? 0) + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
}

/** `complete` is expected and not shown. Anything else is shown with its status or code. */
export function endInWords({ end, status, refusal, requests }: ShownRecord, t: Translate): string {
  if (end === null) return t("records.end.running");
  const times = requests === 1 ? "" : ` ×${exact(requests)}`;
  if (end === "refused") return `${refusal ?? t("records.end.refused")}${times}`;
  const words = `${t(`records.end.${end}`)}${times}`;
  return status === null || (status >= 200 && status < 300) ? words : `${status} ${words}`;
}

/** Unknown is not zero. */
function countOf(tokens: number | null): string {
  return tokens === null ? "–" : short(tokens);
}
