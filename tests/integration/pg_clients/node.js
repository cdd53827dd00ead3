// What node's pg gets of a gateway; the port is the argument.
const { Client } = require("pg");
(async () => {
  const client = new Client({ host: "127.0.0.1", port: Number(process.argv[2]), user: "admin", database: "millstream" });
  await client.connect();
  console.log(JSON.stringify((await client.query("SELECT item, price FROM prices WHERE price > $1", [3])).rows));
  console.log((await client.query("INSERT INTO prices (item, price) VALUES ($1, $2)", ["node", 7])).rowCount);
  console.log(JSON.stringify((await client.query("SELECT COUNT(*) AS n FROM prices")).rows));
  await client.query("SELECT nope FROM prices").catch((error) => console.log(error.code, error.position));
  await client.end();
})();
