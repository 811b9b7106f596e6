/** Signing in: a pasted token, or the configured provider. The fragment of the address stays, and with it the view. */

const form = document.getElementById("token-form");
const problem = document.getElementById("problem");
const KEPT = "tessera-after-sign-in";

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  problem.textContent = "";
  try {
    const answer = await fetch("page/session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token: form.token.value.trim() }),
    });
    if (answer.ok) {
      location.reload();
      return;
    }
    const body = await answer.json().catch(() => null);
    problem.textContent = body?.message ?? `The server answered ${answer.status}: try again.`;
  } catch {
    problem.textContent = "The server does not answer: try again.";
  }
  button.disabled = false;
  form.token.select();
});

async function offered() {
  const answer = await fetch("page/session").catch(() => null);
  if (!answer) {
    problem.textContent = "The server does not answer: try again.";
    return;
  }
  if (answer.ok) {
    location.reload(); // Signed in meanwhile, in another tab.
    return;
  }
  const body = await answer.json().catch(() => null);
  if (!body?.oidc) return;
  const link = document.querySelector("#oidc a");
  link.textContent = `Sign in by ${body.oidc}`;
  // A provider's way back has no fragment: the tab keeps it.
  link.addEventListener("click", () => sessionStorage.setItem(KEPT, location.hash));
  document.getElementById("oidc").hidden = false;
}

offered();
