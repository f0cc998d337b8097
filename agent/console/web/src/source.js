/** The source picker: the watched source, the others, and this browser as a camera. */
import * as api from './api.js';
import { Publisher, cameraSentence, cameraTrack, fileTrack, screenTrack } from './publish.js';
import { h, put } from './panel.js';
import { sentence } from './view.js';
import { hints, isChosen, looksLikeURL, rows, sourceSentence, stateWords, worldWords } from './source-words.js';

const LOOK = 2000; // ms between updates of the list while the picker is open

export class SourcePanel {
  publisher = new Publisher();
  #what = h('p', { class: 'what' });
  #note = h('p', { class: 'note', role: 'status' });
  #preview = h('video', { muted: true, playsInline: true, autoplay: true, class: 'preview', hidden: true });
  #stop = h('button', { class: 'act', hidden: true }, 'Stop my camera');
  #list = h('ul', { class: 'cams' });
  #scene = pick('Built-in scene', 'A small generated film.', 'pick-scene');
  #worlds = h('div', { class: 'picks', id: 'worlds', hidden: true });
  #camera = pick('This camera', 'This browser publishes its camera.', 'pick-camera');
  #screen = pick('This screen', 'A window or the whole screen, published by this browser.', 'pick-screen');
  #file = h('input', { type: 'file', id: 'source-file', accept: 'video/*' });
  #url = h('input', { type: 'text', inputMode: 'url', id: 'source-url', placeholder: 'rtsp://user:password@192.168.1.20/stream1', autocomplete: 'off', spellcheck: false });
  #header = h('input', { type: 'text', id: 'source-header', placeholder: 'Authorization: Bearer …', autocomplete: 'off', spellcheck: false });
  #open = h('button', { class: 'quiet' }, 'Watch');
  #form = h('form', { class: 'url' });
  #whip = h('fieldset', { class: 'whip', hidden: true });
  #whipURL = h('input', { type: 'text', readOnly: true, id: 'whip-url' });
  #whipKey = h('input', { type: 'text', readOnly: true, id: 'whip-key' });
  #busy = false;
  #timer = 0;
  /** The last list of the server. */
  #known = { cameras: [], scene: true, opens: true };
  /** @type {Map<string, any>} rows by identity, so that nothing moves under the reader's finger */
  #rows = new Map();

  /** @param {import('./state.js').State} state @param {import('./controls.js').Confirm} confirm */
  constructor(state, confirm) {
    this.state = state;
    this.confirm = confirm;
    const first = pick('First camera in the room', 'The first camera found.', 'pick-first');
    this.#scene.addEventListener('click', () => void this.choose('scene'));
    first.addEventListener('click', () => void this.choose(''));
    this.#camera.addEventListener('click', () => void this.useCamera());
    this.#screen.addEventListener('click', () => void this.useScreen());
    this.#screen.hidden = !navigator.mediaDevices?.getDisplayMedia;
    this.#stop.addEventListener('click', () => void this.stop());
    this.#file.addEventListener('change', () => {
      const file = this.#file.files?.[0];
      if (file) void this.#publish(() => fileTrack(file), `“${file.name}” plays here, over and over.`);
      this.#file.value = '';
    });
    this.#form.append(h('label', { for: 'source-url' }, 'Address of a camera or stream'), this.#url, this.#open,
      h('small', {}, 'RTSP, MJPEG, HLS or a video, opened by the server. Its password is never shown again.'),
      h('details', {}, h('summary', {}, 'It needs a header'), h('label', { for: 'source-header' }, 'Header for the address (HTTP only)'), this.#header));
    this.#form.addEventListener('submit', (e) => {
      e.preventDefault();
      void this.#address(this.#url.value.trim());
    });
    this.#whip.append(h('legend', {}, 'OBS, a phone, ffmpeg (WHIP)'),
      copied('Server', this.#whipURL, (words) => this.#copied(words)), copied('Bearer token', this.#whipKey, (words) => this.#copied(words)),
      h('small', {}, 'In OBS: Settings, Stream, service “WHIP”; Output: keyframe interval 1 s, B-frames 0.'));
    this.body = h('div', { class: 'source' },
      this.#what, this.#note, this.#preview, this.#stop, this.#list,
      h('div', { class: 'picks' }, this.#worlds, this.#scene, first, this.#camera, this.#screen,
        h('label', { class: 'pick', for: 'source-file' }, h('b', {}, 'A file'), h('small', {}, 'Played by this browser and published like a camera.'), this.#file)),
      this.#form, this.#whip, this.#running());
    this.publisher.onEnded = (sentence) => {
      this.confirm.drop('source');
      this.#own(false);
      this.#tell('bad', sentence);
    };
    state.on('snapshot', () => this.draw());
    addEventListener('pagehide', () => void this.publisher.stop());
  }

  /** Stops and starts commenting. */
  #running() {
    const b = h('button', { class: 'quiet' }, 'Stop commenting');
    const p = h('p', { class: 'running' }, b, h('small', {}, 'Stopping clears the instruction.'));
    this.state.on('snapshot', () => {
      b.textContent = this.state.known.snapshot.monitor_mode === 'ACTIVE' ? 'Stop commenting' : 'Start commenting';
    });
    b.addEventListener('click', async () => {
      const active = this.state.known.snapshot?.monitor_mode === 'ACTIVE';
      this.confirm.drop('source');
      try {
        await (active ? api.stop() : api.start(''));
        this.#tell('wait', active ? 'Stopping.' : 'Starting.');
        this.confirm.expect('source', (s) => (s.monitor_mode === 'ACTIVE') !== active, () => this.#tell('on', active ? 'Commenting has stopped.' : 'Commenting has started.'), () => this.#tell('bad', 'Not confirmed by the room.'));
      } catch (err) {
        this.#tell('bad', err.message);
      }
    });
    return p;
  }

  /** The picker was opened: updates the list while it is visible. */
  shown() {
    this.draw();
    clearInterval(this.#timer);
    void this.#look();
    this.#timer = setInterval(() => {
      if (!this.body.isConnected) clearInterval(this.#timer);
      else if (!document.hidden) void this.#look();
    }, LOOK);
  }

  async #look() {
    try {
      const { cameras, scene, whip } = await api.sources();
      this.#known = { cameras, scene, opens: true };
      this.#whip.hidden = !whip;
      if (whip) {
        this.#whipURL.value = new URL(whip.path, location.href).href;
        this.#whipKey.value = whip.key;
      }
    } catch (err) {
      if (err.status !== 501) return; // retried later
      this.#known = { cameras: [], scene: this.state.known.snapshot?.scene !== false, opens: false };
      this.#whip.hidden = true;
    }
    this.draw();
  }

  draw() {
    const snapshot = this.state.known.snapshot;
    this.#what.textContent = sourceSentence(snapshot?.source, this.publisher.identity, snapshot?.sources, snapshot?.world?.name);
    // The message of a removed camera goes too.
    if (this.#note.dataset.tone === 'on' && snapshot?.sources?.some((s) => s.watched && s.state !== 'live')) this.#tell('', '');
    const worlds = snapshot?.worlds ?? [];
    this.#drawWorlds(worlds, snapshot?.world?.name ?? '');
    this.#scene.hidden = worlds.length > 0 || snapshot?.scene === false || !this.#known.scene;
    this.#form.hidden = !this.#known.opens;
    this.#drawList(rows(snapshot?.sources ?? [], this.#known.cameras, this.publisher.identity));
  }

  /** One button for each generated world. @param {string[]} names @param {string} watched */
  #drawWorlds(names, watched) {
    const key = names.join();
    if (this.#worlds.dataset.key !== key) {
      this.#worlds.dataset.key = key;
      this.#worlds.replaceChildren(...names.map((name) => {
        const { title, words } = worldWords(name);
        const button = pick(title, words, `pick-${name}`);
        button.addEventListener('click', () => void this.choose(`world:${name}`));
        return button;
      }));
    }
    this.#worlds.hidden = names.length === 0;
    names.forEach((name, i) => this.#worlds.children[i].setAttribute('aria-pressed', String(name === watched)));
  }

  #drawList(list) {
    const there = new Set(list.map((r) => r.identity));
    for (const [identity, row] of this.#rows) {
      if (there.has(identity)) continue;
      row.el.remove();
      this.#rows.delete(identity);
    }
    const watched = this.state.known.snapshot?.source?.identity;
    for (const r of list) {
      let row = this.#rows.get(r.identity);
      if (!row) {
        row = this.#row(r.identity);
        this.#rows.set(r.identity, row);
      }
      const state = r.source ? stateWords(r.source, this.state.now) : { words: r.muted ? 'Paused by its owner.' : 'Published by a participant of the room.', tone: '' };
      const on = r.source ? r.source.watched : r.identity === watched;
      row.source = r.source;
      put(row.name, r.name);
      row.name.title = r.source?.address || r.identity;
      put(row.state, state.words);
      row.state.dataset.tone = state.tone;
      put(row.hint, r.source ? hints(r.source).join(' ') : '');
      row.hint.hidden = !row.hint.textContent;
      row.watch.hidden = on;
      row.mark.hidden = !on;
      row.remove.hidden = !r.removable;
    }
    list.forEach((r, i) => {
      const { el } = this.#rows.get(r.identity);
      if (this.#list.children[i] !== el) this.#list.insertBefore(el, this.#list.children[i] ?? null);
    });
    this.#list.hidden = list.length === 0;
  }

  #row(identity) {
    const row = {
      source: null,
      name: h('b', {}), state: h('small', { role: 'status' }), hint: h('small', { class: 'advice' }), mark: h('span', { class: 'mark' }, 'watched'),
      watch: h('button', { class: 'quiet' }, 'Watch'), remove: h('button', { class: 'quiet' }, 'Remove'), el: h('li', {}),
    };
    row.el.append(row.name, h('div', { class: 'row' }, row.mark, row.watch, row.remove), row.state, row.hint);
    row.watch.addEventListener('click', () => void this.choose(`camera:${identity}`));
    row.remove.addEventListener('click', () => void this.#remove(row));
    return row;
  }

  #copied(words) {
    this.confirm.drop('source');
    this.#tell('', words);
  }

  #tell(tone, words) {
    this.#note.dataset.tone = tone;
    this.#note.textContent = words && sentence(words[0].toUpperCase() + words.slice(1));
  }

  /** @param {string} source "", "scene", "world:NAME" or "camera:IDENTITY" */
  async choose(source) {
    if (!source.startsWith('camera:')) {
      await this.publisher.stop();
      this.#own(false);
    }
    this.confirm.drop('source');
    const before = this.state.known.snapshot;
    this.#tell('wait', 'Requested.');
    try {
      await api.setSource(source);
      const id = source.replace(/^camera:/, '');
      const there = (s) => isChosen(source, s, before);
      this.#expect(there, id);
    } catch (err) {
      this.#tell('bad', err.message);
    }
  }

  /** Shows the state of its camera until the room watches it. */
  #expect(there, identity, done = '') {
    this.confirm.expect('source', there, () => this.#tell('on', `${done} It is being watched.`.trim()), () => {
      const s = this.state.known.snapshot?.sources?.find((x) => x.identity === identity);
      const st = s && s.state !== 'live' ? stateWords(s, this.state.now) : { tone: 'wait', words: 'Waiting for its picture.' };
      this.#tell(st.tone, `${done} ${st.words}`.trim());
    });
  }

  async #address(url) {
    if (!looksLikeURL(url)) {
      this.#tell('bad', 'The address must begin with rtsp://, rtsps://, http:// or https://.');
      return;
    }
    this.#open.disabled = true;
    this.confirm.drop('source');
    this.#tell('wait', 'Connecting.');
    try {
      const header = this.#header.value.trim();
      const added = await api.addSource(header ? { url, headers: [header] } : { url });
      if (this.#url.value.trim() === url) this.#url.value = this.#header.value = '';
      this.#expect((s) => s.source?.identity === added.identity && s.source.width > 0, added.identity, `“${added.name}” was added.`);
    } catch (err) {
      this.#tell('bad', err.message);
    } finally {
      this.#open.disabled = false;
    }
  }

  async #remove(row) {
    const { id, name } = row.source;
    row.remove.disabled = true;
    this.confirm.drop('source');
    this.#tell('wait', `Removing “${name}”.`);
    try {
      await api.removeSource(id);
      this.confirm.expect('source', (s) => !s.sources?.some((x) => x.id === id), () => this.#tell('on', `“${name}” has left the room.`), () => this.#tell('bad', 'Not confirmed by the room.'));
    } catch (err) {
      this.#tell('bad', err.message);
    } finally {
      row.remove.disabled = false;
    }
  }

  useCamera() {
    return this.#publish(async () => ({ track: await cameraTrack(), end: () => {} }), 'Your camera is in the room.');
  }

  useScreen() {
    return this.#publish(async () => ({ track: await screenTrack(), end: () => {} }), 'Your screen is in the room.', true);
  }

  /** @param {() => Promise<{track: MediaStreamTrack, sound?: MediaStreamTrack, end: () => void}>} make @param {string} done @param {boolean} [screen] */
  async #publish(make, done, screen = false) {
    if (this.#busy) return;
    this.#busy = true;
    this.confirm.drop('source');
    this.#tell('wait', 'Waiting for the browser’s permission.');
    try {
      const { track, sound, end } = await make();
      this.#tell('wait', 'Publishing to the room.');
      const identity = await this.publisher.publish(track, end, screen, sound);
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
    this.#stop.textContent = this.publisher.screen ? 'Stop showing my screen' : 'Stop my camera';
    this.#preview.hidden = !on;
    this.#preview.srcObject = on && this.publisher.track ? new MediaStream([this.publisher.track]) : null;
    this.state.set({ publishing: on });
    // A camera that is on stays visible when the drawer is closed.
    const button = document.getElementById('open-source');
    button.textContent = on ? (this.publisher.screen ? 'Your screen is on' : 'Your camera is on') : 'Source';
    button.classList.toggle('on-air', on);
    this.draw();
  }
}

/** @param {string} title @param {string} words @param {string} id */
function pick(title, words, id) {
  return h('button', { class: 'pick', id }, h('b', {}, title), h('small', {}, words));
}

/** A text with a copy button. @param {string} label @param {HTMLInputElement} input @param {(words: string) => void} tell */
function copied(label, input, tell) {
  const button = h('button', { class: 'quiet', type: 'button', ariaLabel: `Copy ${label}` }, 'Copy');
  input.addEventListener('focus', () => input.select());
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(input.value); // secure pages only
      tell(`${label} copied.`);
    } catch {
      input.focus();
      tell(`${label} marked: copy it with the keyboard.`);
    }
  });
  return h('p', { class: 'copy' }, h('label', { for: input.id }, label), input, button);
}
