/** Questions to the server beside the stream: kept while they are shown, and asked again when they are old. */

/** As `fetch`. Raises Error with a sentence where nobody answers. */
async function reached(path, asked) {
  try {
    return await fetch(path, asked);
  } catch {
    throw new Error("The server cannot be reached: try again.");
  }
}

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
      found.data = await answered(await reached(path));
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

/** The cookie that a script may drop: without it the other one, which no script can read, signs nobody in. */
const HERE = "__Host-tessera-here";

/** Sign out. False where the server does not know of it: in this browser the session has ended all the same. */
export async function signOut() {
  document.cookie = `${HERE}=; Path=/; Secure; SameSite=Strict; Max-Age=0`;
  try {
    return (await reached("page/session", { method: "DELETE" })).ok;
  } catch {
    return false;
  }
}

/** Ask what changes nothing but takes a body. Raises Error with the server's sentence. */
export async function post(path, body) {
  const answer = await reached(path, {
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
