/** What a form of the page can change, with an example of what can be typed. Empty: its field is another one. */
export const SETTINGS = {
  "limits.spend": "5/day,60/month",
  "limits.requests": "60/minute",
  "limits.tokens": "400k/minute",
  "limits.concurrent": "4",
  "limits.wait": "10s",
  "limits.session.spend": "2",
  "limits.session.requests": "200",
  "limits.session.tokens": "1M",
  quota: "50",
  expires: "2027-03-31",
  group: "",
  model: "gpt-5.1",
} as const;

export const SETTING_NAMES = Object.keys(SETTINGS) as (keyof typeof SETTINGS)[];
