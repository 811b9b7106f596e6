/**
 * What the page shows, as the fragment of its address: `#/queues/research?by=busy`. Pure.
 *
 * A fragment is never sent to the server, so that the names in it are in no log, and it stays through a sign-in.
 */

/** @returns {{parts: string[], query: Record<string, string>}} */
export function parseRoute(fragment) {
  const text = fragment.replace(/^#?\/?/, "");
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const query = {};
  if (at >= 0) for (const [key, value] of new URLSearchParams(text.slice(at + 1))) query[key] = value;
  return { parts: parts.length ? parts : ["fleet"], query };
}

/** The fragment of a route. Keys of `query` whose value is empty are left out; the others are in order. */
export function formatRoute(parts, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  wanted.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const search = new URLSearchParams(wanted).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // A hand-made address with a lone % is shown as it is.
  }
}
