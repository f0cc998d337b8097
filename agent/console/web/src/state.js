/**
 * The state of the page. Parts of the page subscribe and read; only the two inputs (the server's events and
 * the room) and the reader's choices write.
 */
import { ServerClock, moment } from './clock.js';
import { CaptionTrack } from './caption-layout.js';
import { Underway, cycleOf, isComment, SPAN } from './score-layout.js';

const KEPT_RECORDS = 400; // for graphs and the score sheet
const KEPT_DELAYS = 300; // s of history of D, one point a second

export class State extends EventTarget {
  clock = new ServerClock();
  captions = new CaptionTrack();
  underway = new Underway();
  /** @type {import('./score-layout.js').Cycle[]} oldest first */
  cycles = [];
  /** @type {{at: number, delay: number, target: number}[]} */
  delays = [];
  lost = 0;
  #seq = 0;

  /** @type {import('./view.js').Known} */
  known = {
    link: 'connecting',
    retryIn: 0,
    room: 'waiting',
    roomError: '',
    agent: false,
    agentVideo: false,
    cameraSound: false,
    picture: 'none',
    http: false,
    snapshot: null,
    status: null,
    failure: null,
    publishing: false,
    heardAfterSeen: NaN,
  };

  /** The time of the server, ms. */
  get now() {
    return this.clock.at(Date.now());
  }

  /** The delay of the delayed picture, ms. */
  get delay() {
    return Math.max(0, (this.known.snapshot?.delay ?? 0) * 1000);
  }

  get nextSeq() {
    return this.#seq;
  }

  /** @param {Partial<import('./view.js').Known>} change */
  set(change) {
    Object.assign(this.known, change);
    this.#tell('known');
  }

  /** One server-sent event. @param {string} name @param {any} data */
  take(name, data) {
    switch (name) {
      case 'snapshot':
        this.known.snapshot = data;
        this.#status(data.status);
        this.#delay(data);
        this.#tell('snapshot');
        this.#tell('known');
        break;
      case 'status':
        this.#status(data);
        this.#tell('known');
        break;
      case 'history':
        this.cycles = [];
        this.underway.clear();
        this.captions.clear(); // the server may have restarted
        for (const r of data ?? []) this.#record(r, false);
        this.#tell('history');
        break;
      case 'record':
        this.#record(data, true);
        break;
      case 'caption':
        this.underway.caption(data, this.now);
        this.captions.fromEvents(data, performance.now());
        this.#tell('caption');
        break;
      case 'alert':
        this.#tell('alert', data);
        break;
      case 'heard':
        this.#tell('heard', data);
        break;
      case 'lost':
        this.lost += data?.count ?? 0;
        this.#tell('lost', data?.count ?? 0);
        break;
    }
  }

  /** A message of the room; of interest are the results of spoken orders. @param {Uint8Array} payload JSON */
  spokenOrder(payload) {
    try {
      const data = JSON.parse(new TextDecoder().decode(payload));
      if (data.type === 'heard' && data.order) this.#tell('order', data);
    } catch {
      // of a later version
    }
  }

  /** @param {string} segment @param {string} text @param {boolean} final */
  caption(segment, text, final) {
    this.captions.fromRoom(segment, text, final, performance.now());
    this.#tell('caption');
  }

  /** The language of comments, a BCP 47 tag. */
  get language() {
    return this.known.snapshot?.settings?.language ?? '';
  }

  /** The words of the comment in progress; "" without one. */
  get current() {
    const c = this.captions.current(performance.now());
    if (!c || this.cycles.some((r) => r.cycle === c.cycle && c.cycle > 0)) return '';
    return c.text;
  }

  #status(status) {
    if (!status) return;
    this.known.status = status;
    this.underway.status(status, this.now, this.known.snapshot?.settings);
  }

  #delay(s) {
    const at = Date.now();
    const last = this.delays.at(-1);
    if (last && at - last.at < 900) this.delays.pop();
    this.delays.push({ at, delay: s.delay, target: s.target_delay });
    while (this.delays.length > KEPT_DELAYS) this.delays.shift();
  }

  /** @param {import('./types.js').CycleRecord} r @param {boolean} fresh */
  #record(r, fresh) {
    const same = (c) => c.cycle === r.cycle && c.record?.inference_start === r.inference_start;
    if (this.cycles.some(same)) return; // repeated after a reconnect
    const c = cycleOf(r, isComment(r.outcome) ? this.#seq++ : -1, (this.known.snapshot?.delay ?? 0));
    this.cycles.push(c);
    this.#trim();
    const received = Date.now();
    if (fresh) this.clock.observePast(Math.max(...[r.inference_end, r.started_at].map(moment).filter(Number.isFinite)), received);
    this.underway.record(c);
    if (r.outcome === 'failed') {
      if (fresh) this.known.failure = { reason: r.reason ?? '', at: this.now };
    } else if (r.outcome !== 'skipped') {
      this.known.failure = null;
    }
    if (fresh) {
      this.#tell('record', c);
      this.#tell('known');
    }
  }

  /** Drops old cycles, quiet ones outside the sheet first. */
  #trim() {
    if (this.cycles.length <= KEPT_RECORDS) return;
    const edge = this.now - SPAN * 2;
    this.cycles = this.cycles.filter((c) => c.seq >= 0 || c.anchor > edge).slice(-KEPT_RECORDS);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** @param {string} type @param {(detail: any) => void} f */
  on(type, f) {
    this.addEventListener(type, (e) => f(/** @type {CustomEvent} */ (e).detail));
  }
}
