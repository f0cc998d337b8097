/** The picture and the voice without WebRTC: /api/mjpeg on a canvas, /api/audio-stream beside it. */
import * as api from './api.js';
import { pause, spread } from './backoff.js';
import { Parts, VoicePlan, join } from './plain-time.js';
import { median } from './sync.js';

const RATE = 48000; // Hz
const PIECE = 960; // samples that are played at once
const READ = 250; // ms between two readings of the clock: Firefox asks another process for the latency, and waits

export class Plain {
  /** @type {AbortController | null} */
  #run = null;
  #plan = new VoicePlan();
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {GainNode | null} */
  #gain = null;
  #volume = 1;
  #told = 0; // when the offset was, ms
  #ahead = []; // ms from the clock of the context to that of the page, of late
  #read = 0; // when the last of them was read, ms

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{shown: () => void, none: () => void, blocked: () => void, offset: (ms: number) => void, wanted: () => boolean}} on
   * shown: a picture; none: the server has none; blocked: whether the voice needs a click may have changed; offset: heard
   * after seen; wanted: the voice is on, and does not come by the room
   */
  constructor(canvas, on) {
    this.canvas = canvas;
    this.on = on;
  }

  /** Whether the browser blocks the voice until a click. */
  get blocked() {
    return this.#context?.state === 'suspended' && this.on.wanted();
  }

  /** Whether the voice plays here. */
  get playing() {
    return this.#context?.state === 'running' && this.on.wanted();
  }

  start() {
    if (this.#run) return;
    this.#run = new AbortController();
    const { signal } = this.#run;
    this.#plan = new VoicePlan();
    void this.#repeat(signal, (ok) => this.#watch(signal, ok), () => true, this.on.none);
    void this.#repeat(signal, (ok) => this.#listen(signal, ok), this.on.wanted, () => {});
  }

  stop() {
    if (!this.#run) return;
    this.#run.abort();
    this.#run = null;
    void this.#context?.close();
    this.#context = null;
    this.#ahead = [];
    this.on.offset(NaN);
    this.on.blocked();
  }

  /** After a click. */
  async resume() {
    await this.#context?.resume();
  }

  /** @param {number} volume 0 to 1 */
  setVolume(volume) {
    this.#volume = volume;
    if (this.#gain) this.#gain.gain.value = volume;
  }

  /**
   * Reads a stream again and again.
   * @param {AbortSignal} signal @param {(ok: () => void) => Promise<void>} read @param {() => boolean} wanted @param {() => void} failed
   */
  async #repeat(signal, read, wanted, failed) {
    for (let attempt = 0; !signal.aborted; attempt++) {
      if (wanted()) await read(() => (attempt = 0)).catch(() => {});
      if (signal.aborted) return;
      if (attempt === 1) failed();
      await new Promise((done) => setTimeout(done, spread(pause(attempt))));
    }
  }

  /** @param {AbortSignal} signal @param {string} path */
  async #open(signal, path) {
    const res = await fetch(api.inRoom(path), { cache: 'no-store', signal });
    if (!res.ok || !res.body) throw new Error(`HTTP ${res.status}`);
    return res;
  }

  async #watch(signal, ok) {
    const res = await this.#open(signal, '/mjpeg');
    const parts = new Parts();
    const reader = res.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const part = parts.push(value).at(-1); // older ones are skipped
      if (!part) continue;
      const picture = await createImageBitmap(new Blob([part.data], { type: 'image/jpeg' }));
      await new Promise((drawn) => requestAnimationFrame(drawn));
      if (signal.aborted) return;
      if (this.canvas.width !== picture.width) this.canvas.width = picture.width;
      if (this.canvas.height !== picture.height) this.canvas.height = picture.height;
      this.canvas.getContext('2d').drawImage(picture, 0, 0);
      picture.close();
      if (Number.isFinite(part.at)) this.#plan.shown(part.at, performance.timeOrigin + performance.now());
      ok();
      this.on.shown();
    }
  }

  async #listen(signal, ok) {
    const res = await this.#open(signal, '/audio-stream');
    const start = Number(res.headers.get('X-Audio-Timestamp')) * 1000;
    if (!this.#context) {
      this.#context = new AudioContext({ sampleRate: RATE, latencyHint: 'interactive' });
      this.#gain = this.#context.createGain();
      this.#gain.gain.value = this.#volume;
      this.#gain.connect(this.#context.destination);
      this.#context.addEventListener('statechange', this.on.blocked);
      this.on.blocked();
    }
    const reader = res.body.getReader();
    let rest = new Uint8Array(0);
    for (let n = 0; ;) {
      const { done, value } = await reader.read();
      if (done || !this.on.wanted()) return void reader.cancel();
      ok();
      rest = join(rest, value);
      while (rest.length >= 2 * PIECE) {
        this.#play(rest.slice(0, 2 * PIECE), start + (n / RATE) * 1000);
        rest = rest.slice(2 * PIECE);
        n += PIECE;
      }
    }
  }

  /** @param {Uint8Array} bytes @param {number} at their moment in the room, ms */
  #play(bytes, at) {
    const context = this.#context;
    if (context?.state !== 'running') return; // there is no time to play it at
    const pcm = new Int16Array(bytes.buffer);
    const silent = pcm.every((v) => Math.abs(v) < 64);
    const clock = this.#clock(context);
    if (!Number.isFinite(clock)) return;
    const output = clock - (performance.timeOrigin + performance.now() - context.currentTime * 1000);
    const heard = this.#plan.plan(at, performance.timeOrigin + performance.now(), silent, Math.max(0, output));
    if (performance.now() - this.#told > 1000) {
      this.#told = performance.now();
      this.on.offset(this.#plan.heardAfterSeen);
    }
    if (silent || !Number.isFinite(heard)) return;
    const buffer = context.createBuffer(1, PIECE, RATE);
    const samples = buffer.getChannelData(0);
    for (let i = 0; i < PIECE; i++) samples[i] = pcm[i] / 32768;
    const node = context.createBufferSource();
    node.buffer = buffer;
    node.connect(this.#gain);
    node.start((heard - clock) / 1000);
  }

  /** What the moment of a sound at the loudspeaker is after its time in the context, ms. @param {AudioContext} context */
  #clock(context) {
    if (!this.#ahead.length || performance.now() - this.#read >= READ) {
      this.#read = performance.now();
      const t = context.getOutputTimestamp();
      const least = performance.now() + ((context.outputLatency || 0) - context.currentTime) * 1000; // Firefox's timestamp lacks it
      if (t.contextTime > 0) this.#ahead.push(performance.timeOrigin + Math.max(least, t.performanceTime - t.contextTime * 1000));
      if (this.#ahead.length > 20) this.#ahead.shift();
    }
    return median(this.#ahead);
  }
}
