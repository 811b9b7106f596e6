/**
 * What the page knows: for each topic the rows by their keys, as the server's snapshots and deltas say. Pure.
 *
 * A state is never changed: `applied` gives a new one that shares the rows that did not change, so that a view sees by
 * identity what it must draw again.
 */

/** @typedef {{revision: number, rows: Map<string, object>, at: string, whole: boolean}} Topic */

export const EMPTY = Object.freeze({ revision: -1, rows: new Map(), at: "", whole: false });

/** A state without any topic. */
export function initial() {
  return {};
}

/** A topic of a state, empty where nothing is known of it yet. */
export function topic(state, name) {
  return state[name] ?? EMPTY;
}

/**
 * The state after a message of the server. `kind`: `snapshot` replaces a topic's rows, `delta` sets and removes some.
 *
 * A delta of a topic without a snapshot says nothing that can be shown, and one that is not newer was applied before a
 * break: both leave the state as it is.
 */
export function applied(state, kind, message) {
  const old = topic(state, message.topic);
  const set = Object.entries(message.set ?? {});
  if (kind === "snapshot") {
    return { ...state, [message.topic]: made(message, new Map(set)) };
  }
  if (!old.whole || message.revision <= old.revision) return state;
  const rows = new Map(old.rows);
  for (const key of message.gone ?? []) rows.delete(key);
  for (const [key, row] of set) rows.set(key, row);
  return { ...state, [message.topic]: made(message, rows) };
}

function made(message, rows) {
  return { revision: message.revision, rows, at: message.at ?? "", whole: true };
}

/** Which of a topic's rows differ between two states: keys that are new or changed, and keys that are gone. */
export function changes(before, after, name) {
  const old = topic(before, name).rows;
  const now = topic(after, name).rows;
  const changed = [];
  for (const [key, row] of now) if (old.get(key) !== row) changed.push(key);
  const gone = [...old.keys()].filter((key) => !now.has(key));
  return { changed, gone };
}
