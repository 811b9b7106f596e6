/** What can be told of a manifest without a parser of YAML: the server reads it. Pure. */

const BLOCK = /^metadata:[ \t]*(?:#.*)?\n((?:[ \t]+.*\n?|[ \t]*\n)*)/m;
const FLOW = /["']?metadata["']?[ \t]*:[ \t]*\{([^{}]*)/;

/** The namespace that stands in the metadata of a manifest; null where none is seen. The server has the last word. */
export function namespaceIn(text) {
  const block = BLOCK.exec(`${text}\n`)?.[1] ?? "";
  const indent = /^[ \t]+(?=\S)/m.exec(block)?.[0] ?? "";
  const inBlock = new RegExp(`^${indent}namespace:[ \\t]*["']?([a-z0-9-]+)`, "m").exec(block);
  const inFlow = /(?:^|[,{\s])["']?namespace["']?[ \t]*:[ \t]*["']?([a-z0-9-]+)/.exec(FLOW.exec(text)?.[1] ?? "");
  return (indent ? inBlock?.[1] : null) ?? inFlow?.[1] ?? null;
}
