/** The source picker: what is watched, and this browser as a camera. */
import * as api from './api.js';
import { Publisher, cameraSentence, cameraTrack, fileTrack } from './publish.js';
import { h } from './panel.js';

/** An address that only the server could open. @param {string} s */
export function looksLikeURL(s) {
  return /^(rtsps?|https?|whep|srt|rtmps?|udp):\/\/\S+$/i.test(s.trim());
}

/** What is watched, in words. @param {import('./types.js').SourceInfo | undefined} s @param {string} own identity of this browser's camera */
export function sourceSentence(s, own) {
  if (!s || !(s.width > 0)) return 'Nothing is watched yet.';
  const who = own && s.identity === own ? 'your camera' : s.identity || 'a track without a name';
  const fps = s.fps > 0 ? `, ${s.fps.toFixed(s.fps < 10 ? 1 : 0)} frames per s` : '';
  return `Watched: ${who}, ${s.width} × ${s.height}${s.codec ? `, ${s.codec}` : ''}${fps}${s.muted ? ', paused' : ''}.`;
}

export class SourcePanel {
  publisher = new Publisher();
  #what = h('p', { class: 'what' });
  #note = h('p', { class: 'note', role: 'status' });
  #preview = h('video', { muted: true, playsInline: true, autoplay: true, class: 'preview', hidden: true });
  #stop = h('button', { class: 'act', hidden: true }, 'Stop my camera');
  #camera = h('button', { class: 'pick' }, h('b', {}, 'This camera'), h('small', {}, 'This browser publishes its camera.'));
  #file = h('input', { type: 'file', id: 'source-file', accept: 'video/*' });
  #url = h('input', { type: 'text', inputMode: 'url', id: 'source-url', placeholder: 'rtsp://…', autocomplete: 'off', spellcheck: false });
  #busy = false;

  /** @param {import('./state.js').State} state @param {import('./controls.js').Confirm} confirm */
  constructor(state, confirm) {
    this.state = state;
    this.confirm = confirm;
    const scene = h('button', { class: 'pick' }, h('b', {}, 'Built-in scene'), h('small', {}, 'A small football match, made here.'));
    const first = h('button', { class: 'pick' }, h('b', {}, 'First camera in the room'), h('small', {}, 'Whoever is there, or comes first.'));
    scene.addEventListener('click', () => void this.choose('scene'));
    first.addEventListener('click', () => void this.choose(''));
    this.#camera.addEventListener('click', () => void this.useCamera());
    this.#stop.addEventListener('click', () => void this.stop());
    this.#file.addEventListener('change', () => {
      const file = this.#file.files?.[0];
      if (file) void this.#publish(() => fileTrack(file), `“${file.name}” plays here, over and over.`);
      this.#file.value = '';
    });
    const form = h('form', { class: 'url' }, h('label', { for: 'source-url' }, 'Address of a camera'), this.#url, h('button', { class: 'quiet' }, 'Watch'));
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      void this.#address(this.#url.value.trim());
    });
    this.body = h('div', { class: 'source' },
      this.#what, this.#note, this.#preview, this.#stop,
      h('div', { class: 'picks' }, scene, first, this.#camera,
        h('label', { class: 'pick', for: 'source-file' }, h('b', {}, 'A file'), h('small', {}, 'Played by this browser and published like a camera.'), this.#file)),
      form, this.#running());
    this.publisher.onEnded = (sentence) => {
      this.#own(false);
      this.#tell('bad', sentence);
    };
    state.on('snapshot', () => this.draw());
    addEventListener('pagehide', () => void this.publisher.stop());
  }

  /** Commenting itself can be stopped and started. */
  #running() {
    const b = h('button', { class: 'quiet' }, 'Stop commenting');
    const p = h('p', { class: 'running' }, b, h('small', {}, 'Stopping clears the instruction.'));
    this.state.on('snapshot', () => {
      b.textContent = this.state.known.snapshot.monitor_mode === 'ACTIVE' ? 'Stop commenting' : 'Start commenting';
    });
    b.addEventListener('click', async () => {
      const active = this.state.known.snapshot?.monitor_mode === 'ACTIVE';
      try {
        await (active ? api.stop() : api.start(''));
        this.#tell('wait', active ? 'Stopping.' : 'Starting.');
        this.confirm.expect('running', (s) => (s.monitor_mode === 'ACTIVE') !== active, () => this.#tell('on', active ? 'Commenting has stopped.' : 'Commenting has started.'), () => this.#tell('bad', 'The room has not confirmed it.'));
      } catch (err) {
        this.#tell('bad', err.message);
      }
    });
    return p;
  }

  draw() {
    this.#what.textContent = sourceSentence(this.state.known.snapshot?.source, this.publisher.identity);
  }

  #tell(tone, words) {
    this.#note.dataset.tone = tone;
    this.#note.textContent = words;
  }

  /** @param {string} source "", "scene" or "camera:IDENTITY" @param {string} [unsupported] said when the server refuses */
  async choose(source, unsupported) {
    if (source === 'scene' || source === '') {
      await this.publisher.stop();
      this.#own(false);
    }
    this.confirm.drop('source');
    const before = this.state.known.snapshot?.source?.identity;
    this.#tell('wait', 'Asked for it.');
    try {
      await api.setSource(source);
      const id = source.replace(/^camera:/, '');
      const there = (s) => s.source?.width > 0 && (source.startsWith('camera:') ? s.source.identity === id : source === '' || s.source.identity !== before || before === undefined);
      this.confirm.expect('source', there, () => this.#tell('on', 'It is being watched.'), () => this.#tell('wait', 'The server took it; its picture has not come yet.'));
    } catch (err) {
      this.#tell('bad', unsupported && err.status >= 400 && err.status < 500 ? `${unsupported} ${err.message}` : err.message);
    }
  }

  async #address(url) {
    if (!looksLikeURL(url)) {
      this.#tell('bad', 'An address begins like rtsp:// or https://.');
      return;
    }
    await this.choose(url, 'This server does not open addresses by itself. Publish the camera into the room, or start Touchline with that address as its source.');
  }

  useCamera() {
    return this.#publish(async () => ({ track: await cameraTrack(), end: () => {} }), 'Your camera is in the room.');
  }

  /** @param {() => Promise<{track: MediaStreamTrack, end: () => void}>} make @param {string} done */
  async #publish(make, done) {
    if (this.#busy) return;
    this.#busy = true;
    this.confirm.drop('source');
    this.#tell('wait', 'Asking the browser for the picture.');
    try {
      const { track, end } = await make();
      this.#tell('wait', 'Taking it into the room.');
      const identity = await this.publisher.publish(track, end);
      this.#own(true);
      await api.setSource(`camera:${identity}`);
      this.#tell('wait', `${done} Waiting for the commentator to look at it.`);
      this.confirm.expect('source', (s) => s.source?.identity === identity && s.source.width > 0, () => this.#tell('on', `${done} It is being watched.`), () => this.#tell('wait', `${done} It is not watched yet.`));
    } catch (err) {
      this.#own(this.publisher.active);
      this.#tell('bad', cameraSentence(err));
    } finally {
      this.#busy = false;
    }
  }

  async stop() {
    this.confirm.drop('source');
    await this.publisher.stop();
    this.#own(false);
    this.#tell('', 'Your camera is off.');
    try {
      await api.setSource('');
    } catch (err) {
      this.#tell('bad', err.message);
    }
  }

  #own(on) {
    this.#stop.hidden = !on;
    this.#preview.hidden = !on;
    this.#preview.srcObject = on && this.publisher.track ? new MediaStream([this.publisher.track]) : null;
    this.state.set({ publishing: on });
    // A camera that is on must not be forgotten when the drawer is closed.
    const button = document.getElementById('open-source');
    button.textContent = on ? 'Your camera is on' : 'Source';
    button.classList.toggle('on-air', on);
    this.draw();
  }
}
