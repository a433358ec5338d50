// Runs the scenario that the command line names and prints what it returns as JSON.

export async function main(scenarios) {
  const [name, given] = process.argv.slice(2);
  const result = await scenarios[name](JSON.parse(given));
  console.log(JSON.stringify(result));
}
