/** What the console's web server gives for every path it does not know: the sign of a wrong base URL. */
export const indexPage = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <title>keybearer sandbox</title>
  </head>
  <body>
    <h1>keybearer sandbox</h1>
    <p>This is the console's page, not an API answer. The base URL of an OpenAI-compatible client ends in /v1.</p>
  </body>
</html>
`;
