/** What the call answered; undefined when it failed in a way that does no harm. */
export async function ignoring<T>(harmless: (error: unknown) => boolean, call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (harmless(error)) return undefined;
    throw error;
  }
}
