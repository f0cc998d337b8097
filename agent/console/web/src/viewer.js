/** The frames of a comment, enlarged, one at a time. */
import { frameURL } from './api.js';
import { moment } from './clock.js';
import { frameName } from './words.js';

export class FrameViewer {
  #record = null;
  #index = 0;

  /** @param {import('./state.js').State} state */
  constructor(state) {
    this.state = state;
    const $ = (id) => /** @type {any} */ (document.getElementById(id));
    this.el = { box: $('viewer'), img: $('viewer-img'), words: $('viewer-words'), pos: $('viewer-pos'), prev: $('viewer-prev'), next: $('viewer-next') };
    this.el.prev.addEventListener('click', () => this.#go(-1));
    this.el.next.addEventListener('click', () => this.#go(1));
    $('viewer-close').addEventListener('click', () => this.el.box.close());
    this.el.box.addEventListener('click', (e) => {
      if (e.target === this.el.box) this.el.box.close();
    });
    this.el.box.addEventListener('keydown', (e) => {
      if (e.key === 'ArrowLeft') this.#go(-1);
      if (e.key === 'ArrowRight') this.#go(1);
    });
    this.el.img.addEventListener('error', () => {
      if (this.#record) this.el.pos.textContent = 'This picture is no longer stored.';
    });
  }

  /** @param {import('./types.js').CycleRecord} record @param {number} index */
  show(record, index) {
    this.#record = record;
    this.#index = index;
    this.#draw();
    this.el.box.showModal();
  }

  #go(step) {
    const n = this.#record?.frame_ids.length ?? 0;
    this.#index = Math.min(n - 1, Math.max(0, this.#index + step));
    this.#draw();
  }

  #draw() {
    const r = this.#record;
    const n = r.frame_ids.length;
    const name = frameName(this.#index, n, moment(r.frame_at?.[this.#index]) - this.state.clock.offset);
    this.el.img.src = frameURL(r.frame_ids[this.#index]);
    this.el.img.alt = name;
    this.el.words.textContent = r.text ?? '';
    this.el.pos.textContent = name;
    this.el.prev.disabled = this.#index === 0;
    this.el.next.disabled = this.#index === n - 1;
  }
}
