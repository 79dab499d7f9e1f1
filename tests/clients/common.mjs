// What the JavaScript programs of the matrix share: they play cases and print a line of JSON for each.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

export const baseURL = `${process.env.HERMES_URL}/v1`;
export const apiKey = process.env.HERMES_KEY;
export const ASKS = "I need your consent to run this: answer yes or no.";
export const HELLO = "Hello from the agent.";
export const FOUND = "I looked.";
export const SUNNY = "Sunny in Rome.";
export const CLEAN = "It is clean.";
export const ADA = { name: "Ada", age: 36 };

const require = createRequire(`${process.env.CLIENT_FOLDER}/`);
/** Import a package from where the clients are installed. */
export const load = (name) => import(pathToFileURL(require.resolve(name)).href);

export const includes = (text, part) => assert.ok(text.includes(part), text);

export async function play(cases) {
  for (const [name, run] of Object.entries(cases)) {
    let failed = null;
    try {
      await run();
    } catch (error) {
      failed = String(error.stack ?? error);
    }
    console.log(JSON.stringify({ case: name, failed }));
  }
  process.exit(0);
}

/** The cases of one API under their names: `chat` has none before them. */
export const named = (api, cases) =>
  Object.fromEntries(Object.entries(cases).map(([name, run]) => [api === "chat" ? name : `${api}_${name}`, run]));
