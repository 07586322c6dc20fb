import { Followers } from "../control/followers.ts";
import type { Controls } from "../control/routes.ts";
import type { Events } from "../events/events.ts";

/** What the owner may ask about events. */
export function createEventControls(events: Events): Pick<Controls, "events" | "followEvents"> {
  const followers = new Followers();
  events.follow((event) => followers.send({ event }));
  return { events, followEvents: (response) => followers.follow(response) };
}
