import test from 'node:test';
import assert from 'node:assert/strict';
import { Confirm, InstructionBox } from '../src/controls.js';
import { State } from '../src/state.js';

/** The elements of the page by id, as far as the instruction box needs them. */
function page(t) {
  const all = new Map();
  const element = () => Object.assign(new EventTarget(), { value: '', textContent: '', dataset: {}, classList: { toggle() {} }, querySelectorAll: () => [] });
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
