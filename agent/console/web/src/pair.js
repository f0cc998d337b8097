/** Reads how the picture and the voice of the room are played, and keeps them together (sync.js). */
import { buffer, heardAfterSeen, playout, steer, straight } from './sync.js';

const EVERY = 1000; // ms between readings
const OUTPUT = 40; // ms from player to loudspeaker where the browser does not tell

export class Pair {
  /** @type {{picture?: RTCRtpReceiver, voice?: RTCRtpReceiver, camera?: RTCRtpReceiver}} */
  #of = {};
  #last = {};
  #shown = [];
  #steering = straight();
  /** @type {AudioContext | null} */
  #context = null;

  /** @param {HTMLVideoElement} video @param {(offset: number) => void} tell ms; NaN if unknown */
  constructor(video, tell) {
    this.tell = tell;
    if ('requestVideoFrameCallback' in video) {
      const next = (_, frame) => {
        if (frame.receiveTime > 0) this.#shown.push(frame.expectedDisplayTime - frame.receiveTime);
        video.requestVideoFrameCallback(next);
      };
      video.requestVideoFrameCallback(next);
    }
    setInterval(() => void this.#read(), EVERY);
  }

  /** @param {'picture' | 'voice' | 'camera'} what @param {RTCRtpReceiver | undefined} receiver */
  set(what, receiver) {
    this.#of = { ...this.#of, [what]: receiver };
    if (what !== 'camera') {
      this.#last = {};
      this.#steering = straight();
      this.tell(NaN);
    }
    this.#aim();
  }

  async #read() {
    const { picture, voice } = this.#of;
    const shown = this.#shown;
    this.#shown = [];
    if (!picture || !voice) return;
    const [seen, heard] = await Promise.all([picture, voice].map((r) => r.getStats().catch(() => new Map())));
    if (picture !== this.#of.picture || voice !== this.#of.voice) return;
    const find = (stats, type) => [...stats.values()].find((s) => s.type === type);
    const now = { seen: find(seen, 'inbound-rtp'), heard: find(heard, 'inbound-rtp'), output: find(heard, 'media-playout') };
    const last = this.#last;
    this.#last = now;
    if (!now.seen || !now.heard || document.hidden) return; // hidden pages show nothing
    const voiced = buffer(last.heard, now.heard);
    const known = playout(last.output, now.output);
    const offset = heardAfterSeen({
      voice: voiced,
      picture: buffer(last.seen, now.seen),
      output: now.output ? known : this.#output(),
      shown,
      voiceAt: now.heard.estimatedPlayoutTimestamp,
      pictureAt: now.seen.estimatedPlayoutTimestamp,
    });
    if (Number.isFinite(offset)) this.tell(offset);
    this.#steering = steer(this.#steering, offset, voiced.least, performance.now());
    this.#aim();
  }

  /** The delay of the loudspeaker, where only a context of sound tells it. */
  #output() {
    this.#context ??= new AudioContext();
    return this.#context.outputLatency > 0 ? this.#context.outputLatency * 1000 : OUTPUT;
  }

  #aim() {
    const { voice, picture } = this.#steering;
    for (const [what, target] of [['voice', voice], ['camera', voice], ['picture', picture]]) {
      const r = this.#of[what];
      if (r && 'jitterBufferTarget' in r && (r.jitterBufferTarget ?? 0) !== target) r.jitterBufferTarget = target || null;
    }
  }
}
