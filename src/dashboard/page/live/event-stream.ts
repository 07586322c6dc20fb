/** One server-sent event. Ids and retry times are not used here. */
export interface StreamEvent {
  readonly event: string;
  readonly data: string;
}

/** Takes the text of an event stream, cut anywhere, and gives the events that are whole by now. */
export function createEventReader(): (text: string) => StreamEvent[] {
  let rest = "";
  let event = "";
  let data: string[] = [];
  return (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    const whole: StreamEvent[] = [];
    for (const each of lines) {
      const line = each.endsWith("\r") ? each.slice(0, -1) : each;
      if (line === "") {
        if (data.length > 0) whole.push({ event: event === "" ? "message" : event, data: data.join("\n") });
        event = "";
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon === -1 ? line : line.slice(0, colon);
      const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") event = value;
      if (field === "data") data.push(value);
    }
    return whole;
  };
}
