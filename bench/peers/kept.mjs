// Where a peer without a store of its own keeps its runs: a key each in Redis.
import { createClient } from 'redis';

export async function connect(url) {
  const client = createClient({ url });
  await client.connect();
  return {
    set: (id, text) => client.set(`run:${id}`, text),
    get: (id) => client.get(`run:${id}`),
    close: () => client.close(),
  };
}
