// Writes dist/: the page as it is written, and livekit-client as one ES module.
// Layout: dist/index.html is a room, dist/rooms.html the list of many; dist/static/* is served at "/static/*".
import { cp, mkdir, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, 'dist');

await rm(dist, { recursive: true, force: true });
await mkdir(join(dist, 'static'), { recursive: true });
await cp(join(here, 'src'), join(dist, 'static'), { recursive: true });
for (const page of ['index.html', 'rooms.html']) {
  await rm(join(dist, 'static', page));
  await cp(join(here, 'src', page), join(dist, page));
}

// Only the names the page uses are exported, so that the bundler can drop the rest.
const vendor = join(dist, 'static', 'vendor', 'livekit-client.js');
await build({
  stdin: {
    contents: `export { ConnectionState, DisconnectReason, ParticipantKind, Room, RoomEvent, Track, setLogLevel } from 'livekit-client';`,
    resolveDir: here,
  },
  outfile: vendor,
  bundle: true,
  format: 'esm',
  target: ['es2022'],
  minify: true,
  legalComments: 'eof',
  logLevel: 'warning',
});
console.log(`dist written; livekit-client ${Math.round((await stat(vendor)).size / 1024)} KiB`);
