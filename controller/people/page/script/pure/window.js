/** Which rows of a long list are drawn: those in sight and a few beside. Pure. */

const BESIDE = 12;

/** The first row and the one after the last, of `total` rows of `rowPx` each, in a view of `heightPx`. */
export function visible(scrollPx, heightPx, rowPx, total) {
  const first = Math.max(0, Math.floor(scrollPx / rowPx) - BESIDE);
  const end = Math.min(total, Math.ceil((scrollPx + heightPx) / rowPx) + BESIDE);
  return { first: Math.min(first, total), end: Math.max(end, Math.min(first, total)) };
}

/** Where the list must be scrolled to so that a row is in sight; as it is where it is in sight already. */
export function scrolledTo(index, scrollPx, heightPx, rowPx) {
  const top = index * rowPx;
  if (top < scrollPx) return top;
  if (top + rowPx > scrollPx + heightPx) return top + rowPx - heightPx;
  return scrollPx;
}

/** The row that a key moves to, from `index` (-1: none yet); the same for keys that do not move. */
export function moved(key, index, total, pageRows) {
  if (!total) return -1;
  const to = { ArrowDown: index + 1, ArrowUp: index - 1, PageDown: index + pageRows, PageUp: index - pageRows, Home: 0, End: total - 1 }[key];
  return to === undefined ? index : Math.max(0, Math.min(total - 1, to));
}
