/** How long a mutation waits for the driver's first answer before it returns what is so far, in milliseconds. */
export const patienceMs = 20_000;

/** Waits for the driver's answer, but not longer than a client would. */
export async function patiently(outcome: Promise<void>): Promise<void> {
  const late = Promise.withResolvers<void>();
  const timer = setTimeout(late.resolve, patienceMs);
  try {
    await Promise.race([outcome, late.promise]);
  } finally {
    clearTimeout(timer);
    outcome.catch(() => {});
  }
}
