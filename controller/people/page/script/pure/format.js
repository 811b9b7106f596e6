/** Amounts, shares and times as people read them. Pure: the time of reading is passed in. */

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

/** `12345` as `12,345`; what is no number is a dash. */
export function count(value) {
  return isNumber(value) ? GROUPED.format(value) : "–";
}

/** An amount of a resource, with one decimal where it has some. */
export function amount(value) {
  return isNumber(value) ? SHORT.format(value) : "–";
}

/** A share from 0 to 1 as `71 %`. */
export function percent(share) {
  return isNumber(share) ? `${Math.round(share * 100)} %` : "–";
}

/** Memory in MiB as `80 GiB` or `512 MiB`. */
export function memory(mib) {
  if (!isNumber(mib)) return "–";
  return mib >= 1024 ? `${SHORT.format(mib / 1024)} GiB` : `${GROUPED.format(mib)} MiB`;
}

const UNITS = [
  [86400, "d", 3600, "h"],
  [3600, "h", 60, "min"],
  [60, "min", 1, "s"],
];

/** A length of time in its two largest units: `2 d 4 h`, `3 min 20 s`, `8 s`. Minutes alone from ten on. */
export function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  for (const [size, unit, less, lesser] of UNITS) {
    if (whole < size) continue;
    const large = Math.floor(whole / size);
    const rest = Math.floor((whole - large * size) / less);
    return rest && !(unit === "min" && large >= 10) ? `${large} ${unit} ${rest} ${lesser}` : `${large} ${unit}`;
  }
  return `${whole} s`;
}

/** `3 min ago`, `in 2 h`, `now`; a dash for a time that is not known. Both in seconds since 1970. */
export function relative(at, now) {
  if (!isNumber(at)) return "–";
  const seconds = now - at;
  if (Math.abs(seconds) < 1) return "now";
  const [first] = duration(Math.abs(seconds)).match(/^\d+ \S+/);
  return seconds > 0 ? `${first} ago` : `in ${first}`;
}

/** The absolute time, in the reader's own zone: `2026-11-23 18:04:05 UTC`. */
export function absolute(at) {
  if (!isNumber(at)) return "";
  const date = new Date(at * 1000);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const zone = -date.getTimezoneOffset();
  const [sign, away] = [zone > 0 ? "+" : "-", Math.abs(zone)];
  return `${day} ${clock} UTC${zone ? `${sign}${two(Math.floor(away / 60))}:${two(away % 60)}` : ""}`;
}

/** When something starts, as a range: `10 min to 2 h`, `at once`; open above where it may never start. */
export function range(from, to) {
  if (!isNumber(from)) return "";
  const least = from < 30 ? "now" : first(from);
  if (!isNumber(to)) return `${least} or later`;
  const most = first(to);
  return to < 30 ? "at once" : least === most ? `about ${most}` : `${least} to ${most}`;
}

/** The nearest whole number of the largest unit: a forecast is no more exact than that. */
function first(seconds) {
  const [size, unit] = UNITS.find(([each]) => seconds >= each) ?? [1, "s"];
  return `${Math.round(seconds / size)} ${unit}`;
}

/** `NVIDIA A100-SXM4-80GB` as `A100-SXM4-80GB`: the maker says nothing where all are of one. */
export function product(name) {
  return String(name || "").replace(/^NVIDIA\s+/, "");
}

/** `1 node`, `3 nodes`. */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A resource's name for a heading: `nvidia.com/gpu` as `gpu`. */
export function resource(name) {
  return String(name).replace(/^nvidia\.com\//, "");
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** An amount of a resource in its unit: bytes as GiB, all others as they are. */
export function quantity(name, value) {
  return /memory|storage/.test(name) ? memory(value / 2 ** 20) : amount(value);
}

/** What is asked for, in one line: `16 gpu, 64 cpu`. Devices come first. */
export function asked(asks) {
  const entries = Object.entries(asks ?? {});
  entries.sort(([a], [b]) => Number(b.includes("/")) - Number(a.includes("/")));
  return entries.map(([name, value]) => `${quantity(name, value)} ${resource(name)}`).join(", ");
}

/** Since when the controller that answers has a record of its own; null while it has none. */
export function recorded(since) {
  return since === null ? "The controller has begun to record: an hour is shown once it has a sample." : `Recorded by the controller since ${absolute(since)}.`;
}
