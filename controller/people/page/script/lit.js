/** The one place that names the library which draws: lit-html, an unchanged file in controller/people/page/vendor, served as page/vendor. */
export { html, nothing, render, svg } from "./vendor/lit-html/lit-html.js";
export { repeat } from "./vendor/lit-html/directives/repeat.js";
