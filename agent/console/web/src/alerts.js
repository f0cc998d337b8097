/** Alerts: the banner of a new one, and the drawer with the rules of the room and the last alerts. */
import * as api from './api.js';
import { Order, h, put, refill } from './panel.js';
import { sentence } from './view.js';
import { clockTime, count } from './words.js';

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);

const KEPT = 50; // alerts
const LINE = 30; // letters of a rule, in browsers that do not fit a text area to its text
export const LEVELS = ['info', 'warning', 'critical'];
const NOT_FOR_SAFETY = 'Not for safety: the detector misses one person in ten; night, fisheye and crowds are untested.';
/** What decides a rule, and what that means. */
export const BY = {
  auto: 'What the detector measures decides a sentence that it understands; the engine decides any other.',
  facts: 'What the detector measures decides. It refuses sentences that it does not understand.',
  model: 'The answers of the model decide, also for a sentence that the detector understands.',
};

/**
 * Adds a phase of an alert to a list, newest alert first. A phase that comes late changes nothing that a later one said.
 * @param {import('./types.js').Alert[]} list @param {import('./types.js').Alert} a
 */
export function keep(list, a) {
  const i = list.findIndex((x) => x.id === a.id);
  if (i < 0) return [a, ...list].slice(0, KEPT);
  const was = list[i];
  const next = [...list];
  if (a.phase === 'cleared') next[i] = { ...was, phase: 'cleared', cleared_at: a.at };
  else if (a.phase === 'acked') next[i] = { ...was, acked_by: a.acked_by };
  else if (was.phase !== 'cleared') next[i] = { ...was, phase: a.phase };
  return next;
}

/** What a rule does now, in words. @param {import('./types.js').Rule} r */
export function ruleState(r) {
  if (r.problem) return r.problem;
  if (r.snoozed_until) return `snoozed until ${clockTime(Date.parse(r.snoozed_until))}${r.snoozed_by ? ` by ${r.snoozed_by}` : ''}`;
  if (!r.active) return `off now, active ${[r.days?.join(', '), r.hours, r.zone].filter(Boolean).join(' ')}`;
  if (r.on) return 'holds now';
  if (!r.looks && r.unanswered) return `the engine did not answer ${count(r.unanswered, 'look')}`;
  return r.looks ? `${count(r.looks, 'look')}${r.late ? `, ${r.late} late` : ''}` : 'no look yet';
}

/** @param {import('./types.js').Alert} a */
export function alertState(a) {
  const at = clockTime(Date.parse(a.at));
  const seen = a.acked_by ? `, seen by ${a.acked_by}` : '';
  return `${at}${a.phase === 'cleared' && a.cleared_at ? `, over at ${clockTime(Date.parse(a.cleared_at))}` : ''}${seen}`;
}

/** The result of a trial in words. @param {{verdict: string, reason?: string, at?: string}[]} trials the present pictures first */
export function trialWords(trials) {
  if (!trials.length) return 'No picture to try it on.';
  const [now, ...past] = trials;
  const held = past.filter((t) => t.verdict === 'holds').length;
  const last = past.length ? ` It held in ${held} of the last ${count(past.length, 'look')}.` : '';
  return `Now: ${now.verdict}${now.reason ? ` (${now.reason.replace(/[.]$/, '')})` : ''}.${last}`;
}

/** The fields of a rule beside its sentence. */
const FIELDS = [
  ['name', 'Name', 'left door'], ['votes', 'Votes', '2 of 3'], ['cadence', 'Look each', '2s'], ['pause', 'Pause after an alert', '30s'],
  ['hours', 'Hours', '22:00-06:00'], ['zone', 'Time zone', 'Europe/Madrid'], ['days', 'Days', 'mon, tue'],
];

/** The rule without its state. @param {import('./types.js').Rule} r */
export function plainRule(r) {
  const out = {};
  for (const key of ['name', 'when', 'by', 'level', 'votes', 'cadence', 'pause', 'hours', 'zone', 'days', 'interrupt']) {
    if (r[key] !== undefined) out[key] = r[key];
  }
  return out;
}

/** Where alerts for webhooks and MQTT wait, in words; "" without such a target. @param {import('./types.js').Snapshot['alert_queue']} q */
export function queueNote(q) {
  if (!q) return '';
  const waiting = q.waiting ? ` ${count(q.waiting, 'message')} ${q.waiting === 1 ? 'waits' : 'wait'} now.` : '';
  const problem = q.problem ? ` Problem: ${q.problem}.` : '';
  return (q.kept ? 'Alerts for webhooks and MQTT last across restarts until they are delivered.'
    : 'Alerts for webhooks and MQTT wait in memory only: a restart loses them. Start it with --state DIR to keep them.') + waiting + problem;
}

/** Sentences of rules about zones and lines. @param {import('./types.js').Region[]} regions */
export const regionRules = (regions) => regions.flatMap(({ name, kind }) => ({
  zone: [`a person enters the zone "${name}"`, `a person leaves the zone "${name}"`, `nobody in the zone "${name}" for 10 s`, `more than 2 people in the zone "${name}"`],
  line: [`a person crosses the line "${name}"`, `a person crosses the line "${name}" to the left`],
})[kind] ?? []);

/** Draws an alert's box over its picture, which fills its place and may be cut at the sides. @param {HTMLImageElement} img @param {import('./types.js').Box} [box] */
function framed(img, box) {
  const outline = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const draw = () => {
    const [w, h] = [img.naturalWidth, img.naturalHeight];
    if (!box || !w) return;
    outline.setAttribute('viewBox', `0 0 ${w} ${h}`);
    const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    for (const [key, value] of Object.entries({ x: box.x0 * w, y: box.y0 * h, width: (box.x1 - box.x0) * w, height: (box.y1 - box.y0) * h })) rect.setAttribute(key, String(value));
    outline.replaceChildren(rect);
  };
  outline.setAttribute('preserveAspectRatio', 'xMidYMid slice');
  img.addEventListener('load', draw);
  draw();
  return h('span', { class: 'framed' }, img, outline);
}

/** A choice of what decides a rule, and the explanation of the chosen value. @param {string} id @param {string} [now] */
export function byChoice(id, now = 'auto') {
  const note = h('small', { id: `${id}-note` }, BY[now]);
  const select = h('select', { id, ariaDescribedby: note.id }, ...Object.keys(BY).map((value) => h('option', { value, selected: value === now }, value)));
  select.addEventListener('change', () => note.replaceChildren(BY[select.value]));
  return { select, note };
}

/**
 * What a rule's row says below it.
 * @param {string | undefined} words "" while a change is under way @param {string} when the sentence in force
 * @param {string} [typed] one that is not
 */
export function rowWords(words, when, typed) {
  if (words === '' || !typed) return words ?? '';
  return `${words ?? 'Not changed.'} In force: “${when}”.`;
}

/**
 * @typedef {object} Said
 * @property {string} words @property {boolean} [bad]
 * @property {string} [of] the rule that was tried, as JSON: for another one the result does not count
 */

export class Alerts {
  /** @type {import('./types.js').Alert[]} newest first */
  #list = [];
  /** @type {import('./types.js').Rule[]} */
  #rules = [];
  /** What is said about a rule, by its id. @type {Map<string, Said>} */
  #said = new Map();
  /** New sentences that are not in force, by the id of their rule. @type {Map<string, string>} */
  #typed = new Map();
  /** The parts of a rule's row that change. @type {Map<string, {input: any, state: any, said: any}>} */
  #rows = new Map();
  #turn = 0; // of what the form says
  #order = new Order(); // of the rules
  #past = new Order(); // of the alerts
  #unseen = 0;
  #drawn = '';
  #shown = false;
  #note = h('p', { class: 'what' });
  #rulesBox = h('ul', { class: 'cams', ariaLabel: 'Rules', tabIndex: -1 });
  #listBox = h('ol', { class: 'alerts', ariaLabel: 'Alerts, newest first', tabIndex: -1 });
  #problem = h('small', { role: 'status' });
  #queue = h('p', { class: 'what', id: 'alert-queue' });
  #when = h('input', { id: 'rule-when', maxLength: 200, autocomplete: 'off', spellcheck: true, required: true, placeholder: 'somebody comes to the door' });
  #whens = h('datalist', { id: 'rule-whens' });
  #level = h('select', { id: 'rule-level' }, ...LEVELS.map((l) => h('option', { value: l, selected: l === 'warning' }, l)));
  #by = byChoice('rule-by');

  /**
   * @param {import('./state.js').State} state @param {import('./panel.js').Panel} panel
   * @param {() => boolean} silent whether this page is muted
   */
  constructor(state, panel, silent) {
    this.state = state;
    this.panel = panel;
    this.silent = silent;
    this.#when.setAttribute('list', this.#whens.id);
    const form = h('form', { class: 'url' }, h('label', { for: 'rule-when' }, 'Alert when'), this.#when, this.#whens, h('button', { class: 'act' }, 'Add'),
      h('label', { for: 'rule-level', class: 'level' }, 'Level ', this.#level), h('label', { for: 'rule-by', class: 'level' }, 'Decided by ', this.#by.select), this.#by.note,
      h('button', { class: 'quiet', type: 'button', id: 'rule-try' }, 'Try it'), this.#problem);
    form.dataset.needs = 'rules';
    this.#rulesBox.dataset.needs = 'rules';
    form.querySelector('#rule-try')?.addEventListener('click', () => void this.#try(''));
    form.addEventListener('input', () => this.#tell(''));
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      void this.#add();
    });
    this.body = h('div', { class: 'source' }, this.#note, form, h('p', { class: 'what' }, NOT_FOR_SAFETY), this.#rulesBox, h('section', {}, h('h3', {}, 'Alerts'), this.#listBox), this.#queue);
    state.on('alert', (a) => this.#take(a));
    state.on('snapshot', () => {
      const note = queueNote(state.known.snapshot.alert_queue);
      if (this.#queue.textContent !== note) this.#queue.textContent = note;
      this.#queue.hidden = !note;
    });
    $('alarm-close').addEventListener('click', () => this.#hide());
    $('alarm-open').addEventListener('click', () => {
      this.#hide();
      panel.show('alerts');
    });
    setInterval(() => panel.open === 'alerts' && void this.#load(), 2000);
  }

  /** The drawer was opened. */
  shown() {
    this.#unseen = 0;
    this.#badge();
    this.#drawList();
    void this.#load();
    void this.#loadPast();
    void this.#offer();
  }

  /** Offers sentences about the zones and lines of the room. */
  async #offer() {
    const { regions } = await api.regions().catch(() => ({ regions: [] }));
    this.#whens.replaceChildren(...regionRules(regions).map((value) => h('option', { value })));
  }

  /** Loads the alerts from before this page was opened. */
  async #loadPast() {
    const newest = this.#past.ask();
    const { alerts } = await api.alerts().catch(() => ({ alerts: [] }));
    if (!newest()) return;
    const known = new Set(this.#list.map((a) => a.id));
    this.#list = [...this.#list, ...alerts.filter((a) => !known.has(a.id)).reverse()].sort((a, b) => b.at.localeCompare(a.at)).slice(0, KEPT);
    this.#drawList();
  }

  /** The rule in the form. */
  #entered() {
    return { when: this.#when.value.trim(), level: this.#level.value, by: this.#by.select.value };
  }

  /** Tries a rule of the room, or the one in the form. @param {string} id */
  async #try(id) {
    const r = this.#rules.find((x) => x.id === id);
    const rule = r ? plainRule(r) : this.#entered();
    if (!rule.when) return;
    const trying = r ? this.#about(id, { words: 'Trying …', of: JSON.stringify(rule) }) : this.#tell('Trying …');
    const words = await api.tryRule(rule, 20).then(({ trials }) => trialWords(trials), (err) => err.message);
    if (!r && trying === this.#turn) this.#tell(words);
    if (r && trying === this.#said.get(id)) this.#about(id, { ...trying, words });
  }

  async #load() {
    const newest = this.#order.ask();
    try {
      const { rules, note } = await api.rules();
      if (!newest()) return;
      this.#rules = rules;
      this.#say(note ?? (rules.length ? '' : 'A rule is a sentence. When the pictures show it, an alert is raised.'));
      this.#drawRules();
    } catch (err) {
      if (newest()) this.#say(err.message);
    }
  }

  /** Says something in the form. @param {string} words @returns {number} the turn, which the next one ends */
  #tell(words) {
    this.#problem.textContent = words;
    return ++this.#turn;
  }

  /** Says something about a rule. @param {string} id @param {Said} said */
  #about(id, said) {
    this.#said.set(id, said);
    this.#drawRules();
    return said;
  }

  #say(words) {
    if (this.#note.textContent !== words) this.#note.textContent = words;
    this.#note.hidden = !words;
  }

  async #add() {
    const rule = this.#entered();
    if (!rule.when) return;
    await this.#change(() => api.addRule(rule), () => {
      if (this.#when.value.trim() === rule.when) this.#when.value = '';
    });
  }

  /** @param {() => Promise<any>} call @param {() => void} [done] @param {(words: string) => void} [say] shows why it is refused */
  async #change(call, done, say = (words) => void this.#tell(words)) {
    say('');
    try {
      await call();
      done?.();
    } catch (err) {
      say(err.message);
    }
    await this.#load();
  }

  /**
   * Changes a rule. Its row says why a change is refused.
   * @param {string} id @param {() => Promise<any>} call @param {{done?: () => void, typed?: string}} [also] typed: its new sentence
   */
  #changeRule(id, call, { done, typed } = {}) {
    if (typed) this.#typed.set(id, typed);
    return this.#change(call, () => {
      this.#said.delete(id);
      if (typed === this.#typed.get(id)) this.#typed.delete(id);
      done?.();
    }, (why) => this.#about(id, { words: why && sentence(typed ? `Not changed: ${why}` : why), bad: true }));
  }

  #drawRules() {
    this.#remake();
    for (const r of this.#rules) {
      const row = this.#rows.get(r.id);
      if (!row) continue;
      const said = this.#saidOf(r);
      put(row.state, `${r.level ?? 'warning'}; ${ruleState(r)}`);
      row.state.dataset.tone = r.on || r.problem ? 'bad' : '';
      const typed = this.#typed.get(r.id);
      put(row.said, rowWords(said?.words, r.when, typed));
      row.said.dataset.tone = said?.bad || (typed && !said) ? 'bad' : '';
      const when = typed ?? r.when;
      if (row.input !== document.activeElement && row.input.value !== when) row.input.value = when;
    }
  }

  /** What is said about a rule, unless the rule has changed since. @param {import('./types.js').Rule} r */
  #saidOf(r) {
    const said = this.#said.get(r.id);
    return said?.of && said.of !== JSON.stringify(plainRule(r)) ? undefined : said;
  }

  /** Makes the rows anew when a rule has changed, and nobody writes in one. */
  #remake() {
    const key = JSON.stringify(this.#rules.map((r) => [r.id, plainRule(r), Boolean(r.snoozed_until)]));
    if (key === this.#drawn || this.#rulesBox.querySelector('details[open]')) return;
    if (this.#rulesBox.contains(document.activeElement) && document.activeElement?.matches('input, textarea')) return;
    this.#drawn = key;
    this.#rows.clear();
    refill(this.#rulesBox, this.#rules.map((r) => this.#rule(r)));
  }

  /** @param {import('./types.js').Rule} r */
  #rule(r) {
    const name = r.name || r.when;
    const now = () => this.#rules.find((x) => x.id === r.id) ?? r; // the row may be older
    const input = h('textarea', { id: `rule-${r.id}`, value: r.when, maxLength: 200, rows: Math.ceil(r.when.length / LINE), ariaLabel: 'Rule' });
    input.addEventListener('keydown', (e) => {
      if (e.key !== 'Enter' || e.isComposing) return;
      e.preventDefault(); // a rule is one sentence
      input.blur();
    });
    const forget = () => void this.#typed.delete(r.id);
    input.addEventListener('change', () => {
      const when = input.value.trim().replace(/\s+/g, ' ');
      input.blur();
      if (when && when !== now().when) void this.#changeRule(r.id, () => api.setRule(r.id, { ...plainRule(now()), when }), { typed: when });
      else {
        forget();
        this.#about(r.id, { words: '' });
      }
    });
    const remove = h('button', { class: 'quiet', type: 'button', id: `rule-remove-${r.id}`, ariaLabel: `Remove “${name}”` }, 'Remove');
    remove.addEventListener('click', () => void this.#changeRule(r.id, () => api.removeRule(r.id), { done: forget }));
    const state = h('small', {});
    const said = h('small', { role: 'status' });
    this.#rows.set(r.id, { input, state, said });
    const button = (id, words, label, act) => {
      const b = h('button', { class: 'quiet', type: 'button', id: `rule-${r.id}-${id}`, ariaLabel: `${label} “${name}”` }, words);
      b.addEventListener('click', act);
      return b;
    };
    const row = h('div', { class: 'row' },
      button('try', 'Try', 'Try', () => void this.#try(r.id)),
      button('test', 'Test', 'Send a test alert of', () => void this.#changeRule(r.id, () => api.testRule(r.id))),
      r.snoozed_until ? button('snooze', 'Wake', 'End the snooze of', () => void this.#changeRule(r.id, () => api.snoozeRule(r.id, '0s')))
        : button('snooze', 'Snooze 10 min', 'Snooze', () => void this.#changeRule(r.id, () => api.snoozeRule(r.id, '10m'))));
    return h('li', {}, input, remove, state, said, row, this.#more(r, now));
  }

  /**
   * The form with the other fields of a rule.
   * @param {import('./types.js').Rule} r @param {() => import('./types.js').Rule} now the rule in force
   */
  #more(r, now) {
    const inputs = FIELDS.map(([key, label, example]) => {
      const value = r[key] ?? '';
      return /** @type {const} */ ([key, label, h('input', { id: `rule-${r.id}-${key}`, value: Array.isArray(value) ? value.join(', ') : value, placeholder: example, autocomplete: 'off' })]);
    });
    const level = h('select', { id: `rule-${r.id}-level` }, ...LEVELS.map((l) => h('option', { value: l, selected: l === (r.level ?? 'warning') }, l)));
    const by = byChoice(`rule-${r.id}-by`, r.by);
    const interrupt = h('input', { type: 'checkbox', id: `rule-${r.id}-interrupt`, checked: Boolean(r.interrupt) });
    const form = h('form', { class: 'rule-form' },
      ...inputs.map(([, label, input]) => h('label', {}, label, input)), h('label', {}, 'Level', level), h('label', {}, 'Decided by', by.select), by.note,
      h('label', { class: 'check' }, interrupt, 'may interrupt speech'), h('button', { class: 'act' }, 'Save'));
    const box = h('details', {}, h('summary', {}, 'More'), form);
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      const rule = { when: now().when, by: by.select.value, level: level.value, interrupt: interrupt.checked };
      for (const [key, , input] of inputs) {
        const text = input.value.trim();
        if (text) rule[key] = key === 'days' ? text.split(/[ ,]+/) : text;
      }
      void this.#changeRule(r.id, () => api.setRule(r.id, rule), {
        done: () => {
          box.open = false;
        },
      });
    });
    return box;
  }

  /** @param {import('./types.js').Alert} a */
  #take(a) {
    this.#list = keep(this.#list, a);
    if (a.phase === 'new') {
      if (this.panel.open !== 'alerts') this.#unseen++;
      this.#show(a);
    } else if (a.phase === 'cleared' && $('alarm').dataset.alert === a.id && a.level === 'info') {
      this.#hide();
    }
    this.#badge();
    if (this.panel.open === 'alerts') this.#drawList();
  }

  #badge() {
    $('alert-count').textContent = this.#unseen ? String(this.#unseen) : '';
    $('open-alerts').setAttribute('aria-label', this.#unseen ? `Alerts, ${this.#unseen} new` : 'Alerts');
  }

  /** @param {import('./types.js').Alert} a */
  #show(a) {
    const box = $('alarm');
    box.dataset.alert = a.id;
    box.dataset.level = a.level;
    $('alarm-level').textContent = a.level;
    $('alarm-words').textContent = `${a.name}: ${a.reason}`;
    $('alarm-picture').replaceChildren(framed(h('img', { id: 'alarm-frame', src: api.alertFrameURL(a.id, 160), alt: '' }), a.box));
    box.hidden = false;
    if (a.level !== 'info' && !this.silent()) chime();
  }

  #hide() {
    $('alarm').hidden = true;
    delete $('alarm').dataset.alert;
  }

  #drawList() {
    refill(this.#listBox, this.#list.map((a) => {
      const link = h('a', { href: api.alertFrameURL(a.id), target: '_blank', rel: 'noopener' }, framed(h('img', { src: api.alertFrameURL(a.id, 160), alt: 'The frame of the alert', loading: 'lazy' }), a.box));
      const row = h('div', { class: 'row' });
      row.dataset.needs = 'rules';
      if (!a.acked_by) {
        const ack = h('button', { class: 'quiet', type: 'button', id: `alert-seen-${a.id}`, ariaLabel: `Acknowledge “${a.name}”` }, 'Seen');
        ack.addEventListener('click', () => void this.#change(() => api.ackAlert(a.id)));
        row.append(ack);
      }
      const remove = h('button', { class: 'quiet', type: 'button', id: `alert-delete-${a.id}`, ariaLabel: `Delete the alert “${a.name}”` }, 'Delete');
      remove.addEventListener('click', () => void this.#change(() => api.deleteAlert(a.id), () => {
        this.#past.ask()(); // what was read before has it
        this.#list = this.#list.filter((x) => x.id !== a.id);
        this.#drawList();
      }));
      row.append(remove);
      const li = h('li', {}, link, h('b', {}, a.name), h('small', {}, `${a.level}, ${alertState(a)}`), h('p', {}, a.reason), row);
      li.dataset.level = a.level;
      li.dataset.phase = a.phase;
      return li;
    }));
  }
}

/** Two short tones. A browser that has blocked sound plays none. */
function chime() {
  try {
    const ctx = new AudioContext();
    const gain = ctx.createGain();
    gain.gain.value = 0.08;
    gain.connect(ctx.destination);
    [660, 880].forEach((hz, i) => {
      const tone = ctx.createOscillator();
      tone.frequency.value = hz;
      tone.connect(gain);
      tone.start(ctx.currentTime + i * 0.16);
      tone.stop(ctx.currentTime + i * 0.16 + 0.13);
    });
    setTimeout(() => void ctx.close(), 1000);
  } catch {
    // No sound here.
  }
}
