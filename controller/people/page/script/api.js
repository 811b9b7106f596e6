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

  /**
   * What is known of `path` now, {data, error, code}; asked for where it is older than `maxAgeS`, or than `since`: what it is
   * told of has changed then. An old answer stays until there is another.
   */
  of(path, maxAgeS, since = null) {
    const found = this.kept.get(path) ?? { data: null, error: "", code: 0, atMs: 0, asking: false };
    this.kept.set(path, found);
    const old = Date.now() - found.atMs > maxAgeS * 1000;
    if (!found.asking && (old || found.since !== since)) this.ask(path, Object.assign(found, { since }));
    return found;
  }

  async ask(path, found) {
    found.asking = true;
    try {
      found.data = await answered(await reached(path));
      Object.assign(found, { error: "", code: 0 });
    } catch (failed) {
      Object.assign(found, { error: failed.message, code: failed.code ?? 0 });
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
