import test from 'node:test';
import assert from 'node:assert/strict';
import { Confirm, InstructionBox } from '../src/controls.js';
import { State } from '../src/state.js';

/** The elements of the page by id, as far as the instruction box needs them. */
function page(t) {
  const all = new Map();
  const element = () => Object.assign(new EventTarget(), {
    value: '', textContent: '', dataset: {}, classList: { toggle() {} }, focus() {}, querySelectorAll: () => [],
  });
  globalThis.document = {
    getElementById(id) {
      if (!all.has(id)) all.set(id, element());
      return all.get(id);
    },
  };
  t.after(() => delete globalThis.document);
  return globalThis.document.getElementById;
}

/** The server answers each call with the next snapshot. */
function answers(t, ...snapshots) {
  const real = globalThis.fetch;
  globalThis.fetch = async () => new Response(JSON.stringify(snapshots.shift()));
  t.after(() => (globalThis.fetch = real));
}

const snapshot = (more) => ({ status: { state: 'listening', chip: 'watching', percent: 100 }, instruction: '', delay: 0, target_delay: 0, ...more });
const goals = snapshot({ instruction: 'only goals', instruction_by: 'Ana', waiting: [{ instruction: 'only saves', by: 'Ben', acts_at: '' }] });

test('an instruction that waits is said to act when it does', async (t) => {
  const $ = page(t);
  const state = new State();
  const box = new InstructionBox(state, new Confirm(state));
  answers(t, goals);
  await box.send('only saves');
  state.take('snapshot', goals);
  assert.match($('say-state').textContent, /^“only saves” waits/);
  state.take('snapshot', snapshot({ instruction: 'only saves', instruction_by: 'Ben' }));
  assert.match($('say-state').textContent, /^Active: “only saves”/);
});

test('a command keeps what is typed, and what it did stays', async (t) => {
  const $ = page(t);
  const state = new State();
  const box = new InstructionBox(state, new Confirm(state));
  state.take('snapshot', snapshot());
  answers(t, snapshot(), { command: { command: 'stop', effect: 'Stopped.', by: 'Ben', at: '1' } });
  $('instruction').value = 'only goals';
  await box.send('only goals');
  $('instruction').value = 'only saves';
  await box.command('stop');
  state.take('snapshot', snapshot({ instruction: 'only goals' })); // of before the command
  assert.equal($('say-state').textContent, 'Stopped.');
  assert.equal($('instruction').value, 'only saves');
});

/** A box whose instruction is under way; answer ends that. */
function underWay(t, ...commands) {
  const $ = page(t);
  const state = new State();
  const box = new InstructionBox(state, new Confirm(state));
  state.take('snapshot', snapshot());
  const real = globalThis.fetch;
  const sent = [];
  globalThis.fetch = async (path) => (path.endsWith('/command') ? commands.shift() : new Promise((answer) => sent.push(answer)));
  t.after(() => (globalThis.fetch = real));
  $('instruction').value = 'only goals';
  return { $, state, box, sent, done: box.send('only goals') };
}

const stopped = () => new Response(JSON.stringify({ command: { command: 'stop', effect: 'Stopped.', by: 'Ben', at: '1' } }));
const refused = (message) => new Response(JSON.stringify({ message }), { status: 409 });

test('an instruction that is refused after a command is said to be', async (t) => {
  const { $, box, sent, done } = underWay(t, stopped());
  await box.command('stop');
  assert.equal($('say-state').textContent, 'Stopped.');
  sent[0](refused('not now'));
  await done;
  assert.equal($('say-state').textContent, 'not now');
  assert.equal($('instruction').value, 'only goals');
});

test('an instruction that is accepted after a command leaves the box', async (t) => {
  const { $, box, sent, done } = underWay(t, stopped());
  await box.command('stop');
  sent[0](new Response(JSON.stringify(snapshot())));
  await done;
  assert.equal($('say-state').textContent, 'Stopped.');
  assert.equal($('instruction').value, '');
});

test('of two instructions the answer to the newer one is shown', async (t) => {
  const { $, state, box, sent, done } = underWay(t);
  const second = box.send('only saves');
  sent[1](new Response(JSON.stringify(snapshot())));
  await second;
  state.take('snapshot', snapshot({ instruction: 'only saves' }));
  sent[0](refused('not now'));
  await done;
  assert.match($('say-state').textContent, /^Active: “only saves”/);
});

test('Enter in an empty box does not end the wait for an instruction', async (t) => {
  const { $, state, box, sent, done } = underWay(t);
  await box.send('');
  sent[0](new Response(JSON.stringify(snapshot())));
  await done;
  state.take('snapshot', snapshot({ instruction: 'only goals' }));
  assert.match($('say-state').textContent, /^Active: “only goals”/);
  assert.equal($('instruction').value, '');
});
