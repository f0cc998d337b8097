import test from 'node:test';
import assert from 'node:assert/strict';
import { Alerts, alertState, byChoice, keep, plainRule, queueNote, regionRules, ruleState, trialWords } from '../src/alerts.js';
import { State } from '../src/state.js';
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

test('a rule without its state is what the server takes', () => {
  const rule = { when: 'a goal', by: 'facts', level: 'info', days: ['mon'], interrupt: true };
  assert.deepEqual(plainRule({ id: 'r1', ...rule, active: true, on: false, looks: 1, late: 0, unanswered: 0, alert: 'r1-x', acked_by: 'ana', problem: 'x', snoozed_until: at(1) }), rule);
});

test('a snooze, a problem and an acknowledgement are told', () => {
  const rule = { id: 'r1', when: 'a goal', active: true, on: false, looks: 1, late: 0, unanswered: 0 };
  assert.equal(ruleState({ ...rule, snoozed_until: at(9), snoozed_by: 'ana' }), `snoozed until ${clockTime(Date.parse(at(9)))} by ana`);
  assert.equal(ruleState({ ...rule, problem: 'no such rule' }), 'no such rule');
  const list = keep(keep([], phase('a', 'new', 1)), { ...phase('a', 'acked', 2), acked_by: 'ana' });
  assert.equal(alertState(list[0]), `${clockTime(Date.parse(at(1)))}, seen by ana`);
});

test('rules about the zones and lines of the room are offered', () => {
  const all = regionRules([{ name: 'yard', kind: 'zone' }, { name: 'gate', kind: 'line' }, { name: 'door', kind: 'mask' }]);
  assert.ok(all.includes('a person enters the zone "yard"') && all.includes('a person crosses the line "gate" to the left'));
  assert.ok(!all.some((s) => s.includes('door')));
});

test('the result of a trial', () => {
  assert.equal(trialWords([]), 'No picture to try it on.');
  assert.equal(trialWords([{ verdict: 'holds', reason: 'the net bulges' }]), 'Now: holds (the net bulges).');
  const past = ['holds', 'does not hold', 'no answer'].map((verdict) => ({ verdict }));
  assert.equal(trialWords([{ verdict: 'does not hold' }, ...past]), 'Now: does not hold. It held in 1 of the last 3 looks.');
});

test('the drawer says whether alerts for webhooks and MQTT survive a restart', () => {
  assert.equal(queueNote(undefined), '');
  assert.match(queueNote({ waiting: 0, kept: true }), /last across restarts until they are delivered\.$/);
  assert.match(queueNote({ waiting: 2, kept: false }), /in memory only: a restart loses them\..*--state DIR.* 2 messages wait now\.$/);
  assert.match(queueNote({ waiting: 1, kept: true, problem: 'MQTT: connection refused' }), / 1 message waits now\. Problem: MQTT: connection refused\.$/);
});

test('what decides a rule is explained', (t) => {
  const element = (tag) => ({
    tag, attrs: {}, children: [],
    setAttribute(name, value) { this.attrs[name] = value; },
    append(...more) { this.children.push(...more); },
    replaceChildren(...more) { this.children = more; },
    addEventListener(name, f) { this[`on${name}`] = f; },
  });
  globalThis.document = { createElement: element };
  t.after(() => delete globalThis.document);
  const { select, note } = byChoice('rule-by', 'facts');
  assert.deepEqual(select.children.map((o) => [o.value, o.selected]), [['auto', false], ['facts', true], ['model', false]]);
  assert.equal(select.attrs['aria-describedby'], note.id);
  assert.match(note.children[0], /refuses/);
  select.value = 'model';
  select.onchange();
  assert.match(note.children[0], /answers of the model/);
});

/** As much of a page as the drawer needs. */
class Element extends EventTarget {
  id = '';
  value = '';
  dataset = {};
  children = /** @type {any[]} */ ([]);
  #text = '';
  get textContent() { return this.#text + this.children.map((c) => c.textContent ?? c).join(''); }
  set textContent(words) { this.#text = words; }
  setAttribute() {}
  append(...more) { this.children.push(...more); }
  replaceChildren(...more) { this.children = more; }
  contains(el) { return el === this || this.children.some((c) => c instanceof Element && c.contains(el)); }
  matches() { return false; }
  blur() {}
  querySelector(what) { return what.startsWith('#') ? this.find((el) => el.id === what.slice(1)) : null; }
  /** @param {(el: any) => boolean} is @returns {any} */
  find(is) {
    if (is(this)) return this;
    for (const c of this.children) {
      const found = c instanceof Element ? c.find(is) : null;
      if (found) return found;
    }
    return null;
  }
}

test('a refused sentence stays in its row until it is changed', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const all = new Map();
  const byId = (id) => all.get(id) ?? all.set(id, new Element()).get(id);
  globalThis.document = { createElement: () => new Element(), getElementById: byId, activeElement: null };
  const real = globalThis.fetch;
  const rule = { id: 'r1', when: 'a goal', active: true, on: false, looks: 0, late: 0, unanswered: 0 };
  let refuse = '';
  let answers = 0;
  globalThis.fetch = async (path, { method, body }) => {
    answers++;
    if (path.endsWith('/try?looks=20')) return new Response(JSON.stringify({ trials: [{ verdict: 'holds' }] }));
    if (method !== 'GET' && refuse) return new Response(JSON.stringify({ message: refuse }), { status: 400 });
    if (method === 'PUT') Object.assign(rule, JSON.parse(body));
    return new Response(JSON.stringify({ rules: [rule], alerts: [], regions: [] }));
  };
  t.after(() => {
    delete globalThis.document;
    globalThis.fetch = real;
  });
  const settled = async () => {
    for (let seen = -1; seen !== answers;) {
      seen = answers;
      for (let i = 0; i < 3; i++) await new Promise((done) => setImmediate(done));
    }
  };
  const drawer = new Alerts(new State(), /** @type {any} */ ({ open: 'alerts' }), () => true);
  const at = (id) => drawer.body.querySelector(`#${id}`);
  const row = () => drawer.body.find((el) => el.children.some((c) => c.id === 'rule-r1')).textContent;
  const press = async (id) => {
    at(id).dispatchEvent(new Event('click'));
    await settled();
  };
  const type = async (when) => {
    at('rule-r1').value = when;
    at('rule-r1').dispatchEvent(new Event('change'));
    await settled();
  };
  drawer.shown();
  await settled();

  refuse = 'no such word';
  await type('a gaol');
  assert.match(row(), /Not changed: no such word\. In force: “a goal”\./);
  await press('rule-r1-test');
  assert.equal(at('rule-r1').value, 'a gaol');
  assert.match(row(), /look yetno such word\. In force: “a goal”\./);
  await press('rule-r1-try');
  assert.equal(at('rule-r1').value, 'a gaol');
  assert.match(row(), /Now: holds\. In force: “a goal”\./);
  refuse = '';
  await press('rule-r1-snooze');
  assert.equal(at('rule-r1').value, 'a gaol');
  assert.match(row(), /Not changed\. In force: “a goal”\./);
  await type('two goals');
  assert.equal(at('rule-r1').value, 'two goals');
  assert.ok(!row().includes('In force'));
});
