/**
 * The viewer's side of the room: the delayed picture, the voice, the camera's
 * sound as the bot republishes it, the captions. It subscribes to nothing else, in particular not to the camera's
 * own tracks, which are ahead of the picture. It loads livekit-client after the first paint.
 */
import * as api from './api.js';
import { mending, pause, spread } from './backoff.js';
import { Pair } from './pair.js';
import { Plain } from './plain.js';

export const loadLiveKit = () => import('./vendor/livekit-client.js');

const STALL = 3000; // ms without a new picture
const HEARD = 2000; // ms until a published microphone counts as heard
const SOUND = 'touchline-sound'; // the camera's sound, delayed

/** The address to connect to: that of the server's answer, or this host. @param {string} [url] */
export function signalURL(url) {
  const u = url || `${location.protocol}//${location.host}`;
  return u.replace(/^http/, 'ws');
}

/** Whether the browser blocks WebRTC with its own machine, and this page is from there. @param {string} agent @param {string} host */
export function shutIn(agent, host) {
  return /\bFirefox\//.test(agent) && /^(localhost|127\.[\d.]+|\[::1\])$/.test(host);
}

/** The codecs that this browser plays from a room, such as "H264"; none if unknown. */
export function playable() {
  const codecs = globalThis.RTCRtpReceiver?.getCapabilities?.('video')?.codecs ?? [];
  return codecs.map((c) => c.mimeType.replace(/^video\//i, '').toUpperCase());
}

/** Whether the room was reached, but not its media. @param {unknown} err */
const unreachable = (err) => /could not establish pc|connection.*timed? ?out|\bice\b/i.test(err instanceof Error ? err.message : String(err));

/** The message for a failed join, for a browser and the host of the page. @param {unknown} err */
export function roomSentence(err, agent = globalThis.navigator?.userAgent ?? '', host = globalThis.location?.hostname ?? '') {
  if (err instanceof api.ApiError) return err.message;
  const message = err instanceof Error ? err.message : String(err);
  if (unreachable(err)) {
    if (shutIn(agent, host)) {
      return `Firefox makes no media connection to ${host}. Use another browser, ` +
        'or start Touchline with --listen and an address of this machine.';
    }
    return 'No media connection; a firewall may block it.';
  }
  if (/abort|cancel/i.test(message)) return '';
  return 'The LiveKit server does not answer.';
}

/** A failure with a sentence for the reader. */
export class RoomError extends Error {}

export class Viewer {
  /** @type {import('livekit-client').Room | null} */
  #room = null;
  #lk = null;
  #timer = 0;
  #attempt = 0;
  #generation = 0;
  #failed = false; // the last attempt to join
  #lastPicture = 0;
  #blockedTimer = 0;
  #volume = 1;
  #muted = false;
  #agent = ''; // the commentator's identity, if the server sends it
  #cameraVolume = 1;
  /** @type {string} */
  name = '';
  /** In the room. */
  identity = '';

  /**
   * @param {import('./state.js').State} state
   * @param {{video: HTMLVideoElement, audio: HTMLAudioElement, camera: HTMLAudioElement, plain: HTMLCanvasElement}} el
   */
  constructor(state, el) {
    this.state = state;
    this.el = el;
    /** @type {(blocked: boolean) => void} */
    this.onBlocked = () => {};
    /** @type {(name: string) => void} */
    this.onName = () => {};
    /** The server sends no picture over HTTP. */
    this.onNoPicture = () => {};
    const offset = (heardAfterSeen) => state.set({ heardAfterSeen });
    this.pair = new Pair(el.video, offset);
    this.plain = new Plain(el.plain, {
      shown: () => state.known.http || state.set({ http: true }),
      none: () => {
        state.set({ http: false });
        this.onNoPicture();
      },
      blocked: () => this.#tellBlocked(),
      offset,
      wanted: () => !el.audio.srcObject && state.known.snapshot?.tts_enabled === true,
    });
    this.#watchPicture();
  }

  /** Whether this page plays the voice. */
  get audible() {
    if (this.#muted || this.#volume === 0) return false;
    return this.el.audio.srcObject ? !this.el.audio.paused : this.plain.playing;
  }

  get joined() {
    return this.#room !== null;
  }

  /** Joins, or joins again at once. */
  async join() {
    clearTimeout(this.#timer);
    const generation = ++this.#generation;
    await this.#leave();
    if (!globalThis.RTCPeerConnection) {
      this.state.set({ room: 'lost', roomError: 'This browser has no WebRTC.' });
      this.showHTTP();
      return;
    }
    if (generation !== this.#generation) return;
    // The last error stays visible during the retry.
    this.state.set({ room: 'joining', roomError: this.#failed ? this.state.known.roomError : '' });
    let room = null;
    try {
      const [lk, grant] = await Promise.all([loadLiveKit(), api.roomToken('viewer', '')]);
      if (generation !== this.#generation) return;
      this.#lk = lk;
      lk.setLogLevel(new URLSearchParams(location.search).has('debug') ? 'debug' : 'silent');
      room = new lk.Room({ adaptiveStream: false, dynacast: false, reconnectPolicy: mending });
      this.#room = room;
      this.#listen(room, generation);
      this.name = grant.room;
      this.#agent = grant.agent ?? '';
      this.identity = grant.identity ?? '';
      this.onName(grant.room);
      await room.connect(signalURL(grant.url), grant.token, { autoSubscribe: false });
      if (generation !== this.#generation) return;
      this.#attempt = 0;
      this.#failed = false;
      this.state.set({ room: 'joined', roomError: '', codecs: playable(), mayTalk: room.localParticipant.permissions?.canPublish });
      this.#look();
    } catch (err) {
      if (generation !== this.#generation) return;
      if (err instanceof api.ApiError && err.status === 401) this.state.set({ link: 'locked' });
      const first = !this.#failed;
      this.#failed = true;
      this.#again(roomSentence(err));
      if (first && unreachable(err) && shutIn(navigator.userAgent, location.hostname)) this.showHTTP();
    }
  }

  /** Leaves until join is called. */
  async leave() {
    this.#generation++;
    clearTimeout(this.#timer);
    await this.#leave();
    this.state.set({ room: 'waiting', agent: false, agentVideo: false });
  }

  /** Shows the picture and plays the voice without WebRTC, until the room has a picture. */
  showHTTP() {
    this.plain.start();
    this.state.set({ http: true });
  }

  /** Sound may start only after a click. */
  async startAudio() {
    try {
      void this.plain.resume();
      await this.#room?.startAudio();
      await this.el.audio.play().catch(() => {});
      if (this.el.camera.srcObject) await this.el.camera.play().catch(() => {});
    } finally {
      this.#tellBlocked();
    }
  }

  /** On this page only. @param {number} volume 0 to 1 @param {boolean} muted */
  setVolume(volume, muted) {
    this.#volume = volume;
    this.#muted = muted;
    this.el.audio.volume = volume;
    this.el.audio.muted = muted;
    this.el.camera.volume = volume * this.#cameraVolume;
    this.el.camera.muted = muted;
    this.plain.setVolume(muted ? 0 : volume);
  }

  /** The camera's sound against the voice, on this page only. @param {number} volume 0 to 1 */
  setCameraVolume(volume) {
    this.#cameraVolume = volume;
    this.setVolume(this.#volume, this.#muted);
  }

  /**
   * Publishes a microphone, and tells the commentator that it is held.
   * @param {MediaStreamTrack} track
   * @returns {Promise<{heard: Promise<void>, end: () => Promise<void>}>} heard: somebody receives it
   */
  async talk(track) {
    const room = this.#room;
    const agent = [...(room?.remoteParticipants.values() ?? [])].find((p) => this.#isAgent(p));
    if (!room || !agent) throw new RoomError('The commentator is not in the room.');
    const { RoomEvent, Track } = this.#lk;
    const heard = new Promise((done) => {
      room.once(RoomEvent.LocalTrackSubscribed, () => done(undefined));
      setTimeout(done, HEARD);
    });
    const me = room.localParticipant;
    const held = (on) => me.performRpc({ destinationIdentity: agent.identity, method: 'touchline.talk', payload: JSON.stringify({ held: on }) })
      .catch((err) => {
        throw new RoomError(err?.message || 'The commentator does not answer.');
      });
    try {
      await me.publishTrack(track, { source: Track.Source.Microphone, name: 'talk', audioPreset: { maxBitrate: 32_000 }, dtx: false, red: false });
      await held(true);
    } catch (err) {
      await me.unpublishTrack(track, true).catch(() => {});
      throw err;
    }
    return {
      heard,
      end: async () => {
        try {
          await held(false);
        } finally {
          await me.unpublishTrack(track, true).catch(() => {});
        }
      },
    };
  }

  async #leave() {
    const room = this.#room;
    this.#room = null;
    if (!room) return;
    room.removeAllListeners();
    await room.disconnect().catch(() => {});
    this.el.video.srcObject = null;
    this.el.audio.srcObject = null;
    this.el.camera.srcObject = null;
    for (const what of ['picture', 'voice', 'camera']) this.pair.set(what, undefined);
    this.#tellBlocked();
    this.state.set({ picture: 'none', cameraSound: false });
  }

  #again(sentence) {
    const wait = pause(this.#attempt++);
    this.state.set({ room: 'lost', roomError: sentence, agent: false, agentVideo: false });
    clearTimeout(this.#timer);
    // While the server is away, the events' link decides when to retry.
    this.#timer = setTimeout(() => {
      if (this.state.known.link === 'open') void this.join();
      else this.#again(sentence);
    }, spread(wait));
  }

  /** @param {import('livekit-client').Room} room @param {number} generation */
  #listen(room, generation) {
    const { RoomEvent, DisconnectReason } = this.#lk;
    const live = () => generation === this.#generation;
    const look = () => live() && this.#look();
    room
      .on(RoomEvent.ParticipantConnected, look)
      .on(RoomEvent.ParticipantDisconnected, look)
      .on(RoomEvent.ParticipantAttributesChanged, look)
      .on(RoomEvent.TrackPublished, look)
      .on(RoomEvent.TrackUnpublished, look)
      .on(RoomEvent.TrackSubscribed, (track, pub) => live() && this.#attach(track, pub))
      .on(RoomEvent.TrackUnsubscribed, (track, pub) => live() && this.#detach(track, pub))
      .on(RoomEvent.Reconnecting, () => live() && this.state.set({ room: 'reconnecting' }))
      .on(RoomEvent.SignalReconnecting, () => live() && this.state.set({ room: 'reconnecting' }))
      .on(RoomEvent.Reconnected, () => {
        if (!live()) return;
        this.state.set({ room: 'joined' });
        this.#look();
      })
      .on(RoomEvent.AudioPlaybackStatusChanged, () => live() && this.#tellBlocked())
      .on(RoomEvent.Disconnected, (reason) => {
        if (!live()) return;
        if (this.state.known.room === 'joining') return; // connect reports a better error
        this.#room = null;
        if (reason === DisconnectReason.DUPLICATE_IDENTITY) {
          this.state.set({ room: 'replaced', agent: false, agentVideo: false });
          return;
        }
        this.#again('The connection ended.');
      });
    room.on(RoomEvent.DataReceived, (payload, from, kind, topic) => {
      if (live() && topic === 'touchline.control' && from && this.#isAgent(from)) this.state.spokenOrder(payload);
    });
    room.registerTextStreamHandler('lk.transcription', (reader, { identity }) => {
      if (live()) void this.#read(room, reader, identity);
    });
  }

  /** Captions of the commentator only; other participants could send any text. */
  async #read(room, reader, identity) {
    const from = room.remoteParticipants.get(identity);
    if (!from || !this.#isAgent(from)) return;
    const segment = reader.info.attributes?.['lk.segment_id'] ?? reader.info.id;
    let text = '';
    try {
      for await (const chunk of reader) {
        text += chunk;
        this.state.caption(segment, text, false);
      }
      this.state.caption(segment, text, reader.info.attributes?.['lk.transcription_final'] === 'true');
    } catch {
      // The stream ended with its sender; the server's events have the rest.
    }
  }

  #isAgent(p) {
    if (this.#agent) return p.identity === this.#agent; // other agents may be in the room
    return p.kind === this.#lk.ParticipantKind.AGENT && !p.attributes?.['lk.publish_on_behalf'];
  }

  /** Subscribes to the present tracks of the agent. */
  #look() {
    const room = this.#room;
    if (!room) return;
    const { Track } = this.#lk;
    const agent = [...room.remoteParticipants.values()].find((p) => this.#isAgent(p));
    let video = false;
    for (const pub of agent?.trackPublications.values() ?? []) {
      if (pub.source !== Track.Source.Camera && pub.source !== Track.Source.Microphone && pub.trackName !== SOUND) continue;
      if (pub.source === Track.Source.Camera) video = true;
      if (pub.isEncrypted) { // this page has no key
        this.plain.start();
        continue;
      }
      if (!pub.isDesired) pub.setSubscribed(true);
    }
    this.state.set({ agent: Boolean(agent), agentVideo: video });
  }

  #attach(track, pub) {
    const { Track } = this.#lk;
    if (track.kind === Track.Kind.Video) {
      track.attach(this.el.video);
      this.pair.set('picture', track.receiver);
      return;
    }
    const camera = pub.trackName === SOUND;
    track.attach(camera ? this.el.camera : this.el.audio);
    this.pair.set(camera ? 'camera' : 'voice', track.receiver);
    if (camera) this.state.set({ cameraSound: true });
    this.setVolume(this.#volume, this.#muted);
    this.#tellBlocked();
  }

  #detach(track, pub) {
    if (track.kind === this.#lk.Track.Kind.Audio) {
      const camera = pub.trackName === SOUND;
      track.detach(camera ? this.el.camera : this.el.audio);
      this.pair.set(camera ? 'camera' : 'voice', undefined);
      if (camera) this.state.set({ cameraSound: false });
      return;
    }
    track.detach(this.el.video);
    this.pair.set('picture', undefined);
    this.state.set({ picture: 'none' });
  }

  /** Reports whether the browser blocks the sound, unless it does so for a moment only. */
  #tellBlocked() {
    clearTimeout(this.#blockedTimer);
    const blocked = () => Boolean(this.plain.blocked || (this.#room && !this.#room.canPlaybackAudio));
    if (!blocked()) {
      this.onBlocked(false);
      return;
    }
    this.#blockedTimer = setTimeout(() => this.onBlocked(blocked()), 500);
  }

  #watchPicture() {
    const { video } = this.el;
    const seen = () => {
      this.#lastPicture = performance.now();
      if (this.state.known.picture === 'playing') return;
      this.plain.stop();
      this.state.set({ picture: 'playing', http: false });
    };
    if ('requestVideoFrameCallback' in video) {
      const next = () => {
        seen();
        video.requestVideoFrameCallback(next);
      };
      video.requestVideoFrameCallback(next);
    } else {
      video.addEventListener('timeupdate', seen);
    }
    setInterval(() => {
      if (document.hidden) {
        this.#lastPicture = performance.now(); // hidden pages count no pictures
        return;
      }
      if (this.state.known.picture === 'playing' && performance.now() - this.#lastPicture > STALL) {
        this.state.set({ picture: 'stalled' });
      }
    }, 500);
  }
}
