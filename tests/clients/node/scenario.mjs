// Runs the scenario that the command line names, prints what it returns as JSON, and then stays until
// its standard input ends: so a connection that is closed by then was closed by the client.

export async function main(scenarios) {
  const [name, given] = process.argv.slice(2);
  const result = await scenarios[name](JSON.parse(given));
  console.log(JSON.stringify(result));
  process.stdin.resume();
}
