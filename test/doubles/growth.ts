/** By how many MB this process grows while doing this; measured often, the highest counts. */
export async function growthOf(work: () => Promise<void>): Promise<number> {
  const before = process.memoryUsage().rss;
  let most = before;
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage().rss);
  }, 20);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return (Math.max(most, process.memoryUsage().rss) - before) / 1024 / 1024;
}
