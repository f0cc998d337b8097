import test from 'node:test';
import assert from 'node:assert/strict';
import { alertState, keep, ruleState } from '../src/alerts.js';
import { clockTime } from '../src/words.js';

const at = (sec) => new Date(Date.UTC(2026, 0, 1, 12, 0, sec)).toISOString();
const phase = (id, name, sec) => ({ id, phase: name, at: at(sec), rule: 'r1', name: 'goal', level: 'warning', reason: name, frame_id: 7 });

test('an alert is one entry with the time of its beginning', () => {
  let list = keep([], phase('a', 'new', 1));
  list = keep(list, phase('b', 'new', 2));
  list = keep(list, phase('a', 'shown', 3));
  assert.deepEqual(list.map((a) => [a.id, a.phase, a.at]), [['b', 'new', at(2)], ['a', 'shown', at(1)]]);
  list = keep(list, phase('a', 'cleared', 5));
  assert.equal(list[1].reason, 'new', 'why it was raised, not why it ended');
  assert.equal(alertState(list[1]), `${clockTime(Date.parse(at(1)))}, over at ${clockTime(Date.parse(at(5)))}`);
  list = keep(list, phase('a', 'shown', 6));
  assert.equal(list[1].phase, 'cleared', 'a long delay shows the frame after the end');
});

test('old alerts are dropped', () => {
  let list = [];
  for (let i = 0; i < 60; i++) list = keep(list, phase(`a${i}`, 'new', 0));
  assert.equal(list.length, 50);
  assert.equal(list[0].id, 'a59');
});

test('the state of a rule', () => {
  const rule = { id: 'r1', when: 'a goal', active: true, on: false, looks: 0, late: 0, unanswered: 0 };
  assert.equal(ruleState(rule), 'no look yet');
  assert.equal(ruleState({ ...rule, looks: 1 }), '1 look');
  assert.equal(ruleState({ ...rule, looks: 12, late: 2 }), '12 looks, 2 late');
  assert.equal(ruleState({ ...rule, unanswered: 3 }), 'the engine did not answer 3 looks');
  assert.equal(ruleState({ ...rule, on: true }), 'holds now');
  assert.equal(ruleState({ ...rule, active: false, hours: '22:00-06:00', zone: 'UTC', days: ['mon'] }), 'off now, active mon 22:00-06:00 UTC');
});
