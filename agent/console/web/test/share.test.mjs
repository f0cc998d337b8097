import assert from 'node:assert/strict';
import { test } from 'node:test';
import { aboutLink, isLocal, linkTo, mays, rows, Share, terms } from '../src/share.js';

const all = ['watch', 'instruct', 'settings', 'sources', 'rules', 'speak', 'transcribe', 'process'];

test('what a client may do', () => {
  assert.equal(mays(['watch']), 'watch');
  assert.ok(mays(all).endsWith(' process steer'));
  assert.ok(!mays(['watch', 'instruct', 'settings', 'sources']).includes('steer'));
});

test('what a client is told', () => {
  assert.equal(terms({ rights: all }), '');
  assert.equal(terms({ rights: ['watch'] }), 'This link lets you watch. To do more, ask for a link that steers.');
  assert.match(terms({ rights: ['watch', 'instruct', 'rules', 'speak'], expires: '2026-11-23T12:00:00Z' }),
    /^This link lets you watch and change the instruction, rules until 23 Nov 2026, \d\d:\d\d\. /);
});

test('who steers reads what people say, and the drawer says so', () => {
  const made = () => ({
    children: [],
    append(...nodes) { this.children.push(...nodes); },
    setAttribute() {},
    addEventListener() {},
  });
  const words = (node) => (typeof node === 'string' ? node : node.children.map(words).join(' '));
  globalThis.document = { createElement: made };
  const { body } = new Share({ hostname: 'touchline.example', origin: 'https://touchline.example', pathname: '/' });
  delete globalThis.document;
  assert.match(words(body), /A link that steers also reads what people in the room say/);
});

test('links', () => {
  const expires = '2026-11-23T12:00:00Z';
  assert.match(aboutLink({ rights: ['watch'], name: 'Vera', expires }), /^Vera: Only watches, until 23 Nov 2026, /);
  assert.match(aboutLink({ rights: all, expires }), /^Steers, until /);
  assert.match(aboutLink({ rights: ['watch', 'rules'], expires }), /^Watches and changes, until /);
  assert.equal(aboutLink({ expires, revoked: true }), 'A link, revoked');
  assert.equal(linkTo({ origin: 'https://a.example', pathname: '/rooms/x' }, 'a.b.c'), 'https://a.example/rooms/x#token=a.b.c');
  for (const host of ['localhost', 'a.localhost', '127.0.0.1', '[::1]']) assert.ok(isLocal(host), host);
  for (const host of ['192.168.1.7', 'touchline.example', 'local']) assert.ok(!isLocal(host), host);
});

test('the origin of a link stands above it, also if it is not listed', () => {
  const expires = '2026-11-23T12:00:00Z';
  const links = [
    { id: 'd', expires, makers: ['c', 'x'] }, { id: 'c', expires, makers: ['x'] }, { id: 'b', expires, makers: ['a'] }, { id: 'e', expires }, { id: 'a', expires },
  ];
  assert.deepEqual(rows(links).map((link) => link.id), ['e', 'a', 'b', 'x', 'd', 'c']);
  assert.match(aboutLink(rows(links)[2]), /made with the link above$/);
  assert.match(aboutLink(rows(links)[3]), /not listed/);
  assert.deepEqual(rows([]), []);
});
