// Runs one peer. It reads its settings as JSON from standard input and then
// either drives the peer itself and prints what it measured:
//
//	node main.mjs ai-sdk measure < settings.json
//
// or puts an HTTP server in front of it, says where, and serves until it is
// stopped:
//
//	node main.mjs ai-sdk serve < settings.json
//
// A peer is a file that exports open(settings), which returns
//
//	start(message)   begins a run: {id, status}, where status is held or completed
//	decide(id)       approves what the run waits for: {status}
//	close()
//
// "held" is answered once another process could load the run, "completed" once the
// result is saved.
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

const [name, mode] = process.argv.slice(2);
const settings = JSON.parse(await text(process.stdin));
const { open } = await import(`./${name}.mjs`);
const peer = await open(settings);

if (mode === 'serve') {
  serve();
} else {
  process.stdout.write(JSON.stringify(await measure()) + '\n');
  await peer.close();
}

async function once() {
  const run = await peer.start(settings.message);
  const wanted = settings.capability === 'approve' ? 'held' : 'completed';
  if (run.status !== wanted) throw new Error(`the run is ${run.status}, want ${wanted}`);
  if (wanted === 'completed') return;
  const decided = await peer.decide(run.id);
  if (decided.status !== 'completed') throw new Error(`the run is ${decided.status}, want completed`);
}

async function measure() {
  for (let i = 0; i < settings.warm_up; i++) await once();
  const took = [];
  for (let i = 0; i < settings.runs; i++) {
    const began = performance.now();
    await once();
    took.push(performance.now() - began);
  }
  took.sort((a, b) => a - b);
  await loops(settings.warm_up_ms);
  const before = process.cpuUsage();
  const { n, ms } = await loops(settings.measure_ms);
  const { user, system } = process.cpuUsage(before);
  const us = (at) => Math.round(took[Math.floor(took.length * at)] * 1000);
  return {
    p50_us: us(0.5),
    p99_us: us(0.99),
    runs_per_s: Math.round((n * 1000) / ms),
    cpu_us: Math.round((user + system) / Math.max(n, 1)),
  };
}

// loops keeps settings.in_flight runs going for a time.
async function loops(forMs) {
  const began = performance.now();
  let n = 0;
  const loop = async () => {
    while (performance.now() - began < forMs) {
      await once();
      n++;
    }
  };
  await Promise.all(Array.from({ length: settings.in_flight }, loop));
  return { n, ms: performance.now() - began };
}

function serve() {
  const routes = {
    '/runs': (body) => peer.start(body.message),
    '/decide': (body) => peer.decide(body.id),
  };
  const server = createServer(async (req, res) => {
    try {
      const answer = JSON.stringify(await routes[req.url](JSON.parse(await text(req))));
      res.writeHead(200, { 'Content-Type': 'application/json' }).end(answer);
    } catch (fault) {
      res.writeHead(500).end(String(fault?.stack ?? fault));
    }
  });
  // A connection that the client may still use is not closed under it.
  server.keepAliveTimeout = 120_000;
  server.listen(0, '127.0.0.1', () => {
    process.stdout.write(`serving on http://127.0.0.1:${server.address().port}\n`);
  });
  process.on('SIGTERM', async () => {
    server.close();
    server.closeAllConnections();
    await peer.close();
  });
}
