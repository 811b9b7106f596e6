// A browser does not ask again for a module that could not be read (the network changed, the server had too much to
// do), and the page would stay empty. This is no module: it has to run where they do not.
const AGAIN_MS = 3000;
let waits = false;

addEventListener(
  "error",
  ({ target }) => {
    if (waits || !(target instanceof Element) || !target.matches("script, link[rel=stylesheet]")) return;
    waits = true;
    const said = document.createElement("p");
    said.setAttribute("role", "alert");
    said.textContent = "Not all of this page could be read. It is read again in a moment.";
    document.body?.append(said);
    setTimeout(() => location.reload(), AGAIN_MS);
  },
  true, // Such an event does not bubble.
);
