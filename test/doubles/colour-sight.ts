/** How colours look to people, in numbers: for what must be told apart without a person to ask. */

/** Linear light of red, green and blue, 0 to 1. */
export type Channels = readonly [number, number, number];

export const SIGHTS = ["all colours", "no red", "no green", "no blue"] as const;
export type Sight = (typeof SIGHTS)[number];

/** Machado, Oliveira and Fernandes 2009, full severity. */
const LOSS: Readonly<Record<Exclude<Sight, "all colours">, readonly Channels[]>> = {
  "no red": [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  "no green": [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  "no blue": [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

export function lightOf(hex: string): Channels {
  const channel = (at: number) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [channel(1), channel(3), channel(5)];
}

export function seen(light: Channels, sight: Sight): Channels {
  if (sight === "all colours") return light;
  const [red, green, blue] = LOSS[sight].map((row) => Math.min(1, Math.max(0, dot(row, light))));
  return [red ?? 0, green ?? 0, blue ?? 0];
}

/** WCAG 2: 1 to 21. */
export function contrast(one: Channels, other: Channels): number {
  const [dark = 0, bright = 0] = [one, other]
    .map((light) => dot([0.2126, 0.7152, 0.0722], light))
    .sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}

/** In OKLab, where equal steps look equal; 1 is from black to white. */
export function difference(one: Channels, other: Channels): number {
  const [a, b] = [oklab(one), oklab(other)];
  return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

function oklab(light: Channels): Channels {
  const cones: Channels = [
    Math.cbrt(dot([0.4122214708, 0.5363325363, 0.0514459929], light)),
    Math.cbrt(dot([0.2119034982, 0.6806995451, 0.1073969566], light)),
    Math.cbrt(dot([0.0883024619, 0.2817188376, 0.6299787005], light)),
  ];
  return [
    dot([0.2104542553, 0.793617785, -0.0040720468], cones),
    dot([1.9779984951, -2.428592205, 0.4505937099], cones),
    dot([0.0259040371, 0.7827717662, -0.808675766], cones),
  ];
}

function dot(a: Channels, b: Channels): number {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}
