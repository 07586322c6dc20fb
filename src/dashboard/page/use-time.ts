import { useEffect, useState } from "preact/hooks";
import { useFrame } from "./frame.tsx";

/** The time, for what grows old while one looks at it. */
export function useTime(everyMs = 1000): number {
  const { clock } = useFrame();
  const [time, setTime] = useState(clock);
  useEffect(() => {
    const timer = setInterval(() => setTime(clock()), everyMs);
    return () => clearInterval(timer);
  }, [clock, everyMs]);
  return time;
}
