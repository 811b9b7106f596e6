/** Questions to the server beside the stream: kept while they are shown, and asked again when they are old. */

export class Answers {
  constructor(changed) {
    this.changed = changed;
    this.kept = new Map();
  }

  /** What is known of `path` now, {data, error}; asked for where it is older than `maxAgeS`. An old answer stays. */
  of(path, maxAgeS) {
    const found = this.kept.get(path) ?? { data: null, error: "", atMs: 0, asking: false };
    this.kept.set(path, found);
    if (!found.asking && Date.now() - found.atMs > maxAgeS * 1000) this.ask(path, found);
    return found;
  }

  async ask(path, found) {
    found.asking = true;
    try {
      found.data = await answered(await fetch(path));
      found.error = "";
    } catch (failed) {
      found.error = failed.message;
      if (failed.code === 403 || failed.code === 404) found.data = null;
    }
    found.asking = false;
    found.atMs = Date.now();
    this.changed();
  }
}

/** Ask what changes nothing but takes a body. Raises Error with the server's sentence. */
export async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return answered(answer);
}

async function answered(answer) {
  const body = await answer.json().catch(() => null);
  if (answer.ok) return body;
  const failed = new Error(body?.message ?? `The server answered ${answer.status}: try again.`);
  failed.code = answer.status;
  throw failed;
}
