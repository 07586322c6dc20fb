import { Followers } from "../control/followers.ts";
import type { Controls } from "../control/routes.ts";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import { EventWatch } from "../events/watch.ts";
import type { Services } from "./services.ts";
import type { Shutdown } from "./shutdown.ts";

interface WatchOptions {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly log: Logger;
}

/** From now on what happens is reported, until the stop begins. */
export function watchEvents(
  { paths, clock, log }: WatchOptions,
  services: Services,
  shutdown: Shutdown,
): void {
  const checkCommand = advice.check(paths.explicit ? paths.config : null);
  const watch = new EventWatch({ ...services, clock, log, checkCommand });
  shutdown.add("stop watching for events", watch.start());
}

/** What the owner may ask about events. */
export function createEventControls({
  events,
}: Pick<Services, "events">): Pick<Controls, "events" | "followEvents"> {
  const followers = new Followers();
  events.follow((event) => followers.send({ event }));
  return { events, followEvents: (response) => followers.follow(response) };
}
