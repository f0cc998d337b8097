import test from 'node:test';
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { apiBase, fragmentToken, frameURL, login } from '../src/api.js';
import { pick, reusable, thumbnail } from '../src/comments.js';
import { clockTime, frameName } from '../src/words.js';
import { looksLikeURL, sourceSentence } from '../src/source-words.js';
import { roomSentence, shutIn } from '../src/room.js';
import { cameraSentence } from '../src/publish.js';
import { figures } from '../src/scoresheet.js';
import { cycleOf } from '../src/score-layout.js';

test('the token in the fragment', () => {
  assert.equal(fragmentToken('#token=abc-123'), 'abc-123');
  assert.equal(fragmentToken('#A1B2C3D4E5F6G7H8'), 'A1B2C3D4E5F6G7H8');
  assert.equal(fragmentToken('#instruction'), '');
  assert.equal(fragmentToken(''), '');
});

/** A server that takes logins. @param {(token: string, res: import('node:http').ServerResponse) => void} answer */
async function loginServer(t, answer) {
  const server = createServer(async (req, res) => {
    let body = '';
    for await (const part of req) body += part;
    answer(JSON.parse(body).token, res);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const plain = globalThis.fetch;
  globalThis.fetch = (path, opts) => plain(`http://127.0.0.1:${server.address().port}${path}`, opts);
  t.after(() => {
    globalThis.fetch = plain;
    server.closeAllConnections();
    server.close();
  });
}

test('a login that is one of too many, or after a standstill, is tried again', async (t) => {
  const statuses = [429, 503, 204, 429, 401, 503];
  const seen = [];
  await loginServer(t, (token, res) => {
    seen.push(token);
    const status = statuses.shift();
    res.writeHead(status, statuses.length && status !== 401 ? { 'Retry-After': '1' } : {}).end();
  });
  const told = [];
  const began = Date.now();
  assert.equal(await login('a-link', (text) => told.push(text)), true);
  assert.ok(Date.now() - began >= 2000, 'it waits as long as the server says');
  await assert.rejects(login('wrong', (text) => told.push(text)), { status: 401 });
  await assert.rejects(login('down', (text) => told.push(text)), { status: 503 }, 'the server names no time');
  assert.deepEqual(seen, ['a-link', 'a-link', 'a-link', 'wrong', 'wrong', 'down']);
  const many = 'Too many logins. Trying again in 1 s.';
  assert.deepEqual(told, [many, 'The server takes no login now. Trying again in 1 s.', many]);
});

test('a newer login ends the one that waits for its next try', async (t) => {
  const seen = [];
  await loginServer(t, (token, res) => {
    seen.push(token);
    if (token === 'wrong') res.writeHead(429, { 'Retry-After': '1' }).end();
    else res.writeHead(204).end();
  });
  let older = /** @type {any} */ (null);
  await new Promise((waits) => (older = login('wrong', waits)));
  assert.equal(await login('right', () => assert.fail('there is room')), true);
  assert.equal(await older, false);
  assert.deepEqual(seen, ['wrong', 'right']);
});

test('a newer login ends the one that has no answer yet', async (t) => {
  let held = /** @type {any} */ (null);
  const asked = new Promise((done) => (held = done));
  await loginServer(t, (token, res) => {
    if (token === 'newer') res.writeHead(204).end();
    else held({ closed: new Promise((done) => res.on('close', done)) });
  });
  const older = login('older', () => assert.fail('it is over'));
  const { closed } = await asked;
  assert.equal(await login('newer', () => {}), true);
  assert.equal(await older, false);
  await closed;
});

test('the room is in the address', () => {
  assert.equal(apiBase('/'), '/api');
  assert.equal(apiBase('/rooms/s%C3%BCd%2F2'), '/api/rooms/s%C3%BCd%2F2');
  assert.equal(apiBase('/rooms/'), '/api');
  assert.equal(apiBase('/rooms/a/b'), '/api');
});

test('addresses', () => {
  assert.equal(frameURL(7, 160), '/api/frames/7?w=160');
  assert.equal(frameURL(7), '/api/frames/7');
  assert.ok(looksLikeURL('rtsp://camera.local/1'));
  assert.ok(!looksLikeURL('my camera'));
  assert.ok(!looksLikeURL('javascript:alert(1)'));
});

test('thumbnails are spread evenly and hold the newest frame', () => {
  assert.deepEqual(pick([1, 2, 3], 5), [1, 2, 3]);
  assert.deepEqual(pick([1, 2, 3, 4, 5, 6, 7, 8, 9], 5), [1, 3, 5, 7, 9]);
  assert.equal(pick(Array.from({ length: 64 }, (_, i) => i), 5).at(-1), 63);
});

test('a comment whose picture failed is made anew, unless it has the focus', (t) => {
  const row = (gone) => ({ querySelector: (what) => (gone && what === '.thumb.gone' ? {} : null), contains: (el) => el === `in ${gone}` });
  globalThis.document = { activeElement: null };
  t.after(() => delete globalThis.document);
  const [whole, failed] = [row(false), row(true)];
  assert.equal(reusable(whole), whole);
  assert.equal(reusable(failed), undefined);
  assert.equal(reusable(undefined), undefined);
  globalThis.document.activeElement = 'in true';
  assert.equal(reusable(failed), failed);
});

test('a thumbnail has a name for screen readers', (t) => {
  const at = Date.UTC(2026, 0, 1, 12);
  assert.equal(frameName(1, 4, at), `Frame 2 of 4, seen at ${clockTime(at)}`);
  assert.equal(frameName(0, 1, NaN), 'Frame 1 of 1');

  const element = (tag) => ({
    tag, attrs: {}, children: [], classList: { add() {} }, remove() {},
    setAttribute(name, value) { this.attrs[name] = value; },
    append(...more) { this.children.push(...more); },
  });
  globalThis.document = { createElement: element };
  t.after(() => delete globalThis.document);
  const b = thumbnail(7, 'Frame 2 of 4');
  assert.equal(b.tag, 'button');
  assert.equal(b.attrs['aria-label'], 'Frame 2 of 4');
  const [img] = b.children;
  assert.equal(img.alt, 'Frame 2 of 4');
  img.onerror();
  assert.equal(b.attrs['aria-label'], 'Frame 2 of 4: no longer stored');
});

test('sentences for what is watched and what fails', () => {
  assert.equal(sourceSentence(undefined, ''), 'No source yet.');
  assert.equal(sourceSentence({ identity: 'me', width: 1280, height: 720, fps: 29.7, codec: 'VP8' }, 'me'), 'Watched: your camera, 1280 × 720, VP8, 30 frames per s.');
  assert.match(roomSentence(new Error('could not establish pc connection')), /firewall/);
  assert.match(roomSentence(new Error('could not establish pc connection'), 'Gecko/20100101 Firefox/128.0', '127.0.0.1'), /Firefox makes no media connection to 127\.0\.0\.1/);
  assert.match(cameraSentence(Object.assign(new Error('x'), { name: 'NotAllowedError' })), /not allowed/);
  assert.match(cameraSentence(Object.assign(new Error('x'), { name: 'NotFoundError' })), /no camera/);
});

test('the figures of a cycle leave out what was not measured', () => {
  const labels = figures(cycleOf({ cycle: 1, outcome: 'silent', frame_ids: [1, 2], inference_sec: 0.4, newest_frame_at: '2026-01-01T12:00:00Z' }, -1, 0)).map(([l]) => l);
  assert.deepEqual(labels, ['frames', 'thinking']);
});

test('Firefox has no media on the machine itself', () => {
  const fox = 'Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0';
  for (const host of ['localhost', '127.0.0.1', '[::1]']) assert.ok(shutIn(fox, host));
  assert.ok(!shutIn(fox, '192.168.1.5'));
  assert.ok(!shutIn('Mozilla/5.0 Chrome/150.0.0.0 Safari/537.36', 'localhost'));
});
