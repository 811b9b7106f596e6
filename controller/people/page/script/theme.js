/** Light or dark: as the system says, until the reader says otherwise. */

const KEY = "tessera-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function isDark() {
  const chosen = localStorage.getItem(KEY);
  return chosen ? chosen === "dark" : system.matches;
}

export function apply() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

export function toggle() {
  localStorage.setItem(KEY, isDark() ? "light" : "dark");
  apply();
}

/** Call `changed` when the system changes, after the page has followed. */
export function follow(changed) {
  system.addEventListener("change", () => {
    apply();
    changed();
  });
}
