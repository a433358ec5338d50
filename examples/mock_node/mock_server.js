// One mock server for all test files of a run: started before the first of them, stopped after the
// last one.  It also stops if this process is killed, for its standard input ends then.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

export default async function setup({ provide }) {
  const flags = ["mock", "--port", "0", "--print-port", "--until-stdin-ends"];
  const server = spawn("caesar-server", [...flags, "--log-level", "warning"], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = once(server, "close");
  const line = once(createInterface({ input: server.stdout }), "line");
  const [port] = await Promise.race([
    line,
    ended.then(() => {
      throw new Error("caesar-server mock did not start; its standard error says why");
    }),
  ]);
  provide("mockServer", `http://127.0.0.1:${port}`);
  return async () => {
    server.stdin.end();
    await ended;
  };
}
