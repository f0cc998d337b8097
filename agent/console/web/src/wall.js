/**
 * The texts of the page of many rooms, from the server's list and events. Without a DOM.
 */
import { chip, locked, sentence } from './view.js';
import { count, millis, seconds } from './words.js';

/**
 * @typedef {object} RoomInfo as GET /api/rooms has it
 * @property {string} room
 * @property {string} state @property {string} chip @property {string} [reason] @property {number} percent
 * @property {boolean} speech
 * @property {{width: number, identity?: string, muted?: boolean}} source
 * @property {number} viewers
 * @property {number} delay @property {number} alignment_last @property {number} alignment_p95
 * @property {number} comments
 * @property {{cycle: number, text: string, at: string}} [newest]
 *
 * @typedef {object} Tile
 * @property {string} room @property {string} href
 * @property {{words: string, tone: string}} chip
 * @property {string} words the newest comment, or the words in its place
 * @property {number} at its time, ms; NaN without one
 * @property {boolean} live it is in progress
 * @property {boolean} picture there is one
 * @property {string} none the words in place of the picture
 * @property {string} behind @property {string} aligned @property {boolean} late
 * @property {string} viewers
 */

/** The page of a room. @param {string} room */
export const hrefOf = (room) => `/rooms/${encodeURIComponent(room)}`;

/** The list, kept up to date by events. */
export class Wall {
  /** @type {Map<string, RoomInfo>} */
  #rooms = new Map();
  /** What is being said, by room. @type {Map<string, string>} */
  #said = new Map();

  /** One server-sent event. @param {string} name @param {any} data */
  take(name, data) {
    if (name === 'rooms') {
      this.#rooms = new Map((data ?? []).map((r) => [r.room, r]));
      for (const room of this.#said.keys()) if (!this.#rooms.has(room)) this.#said.delete(room);
      return;
    }
    if (name === 'room') {
      this.#rooms.set(data.room, data);
      return;
    }
    const info = this.#rooms.get(data?.room);
    if (!info) return; // its event comes within a second
    switch (name) {
      case 'gone':
        this.#rooms.delete(data.room);
        this.#said.delete(data.room);
        break;
      case 'status':
        Object.assign(info, { state: data.state, chip: data.chip, reason: data.detail ?? '', percent: data.percent });
        break;
      case 'caption':
        this.#said.set(data.room, data.text ?? '');
        break;
      case 'record':
        this.#said.delete(data.room);
        if (data.text && ['spoken', 'shown', 'cut'].includes(data.outcome)) {
          info.newest = { cycle: data.cycle, text: data.text, at: data.started_at ?? data.inference_end };
        }
        break;
    }
  }

  /** @param {string} room */
  has(room) {
    return this.#rooms.has(room);
  }

  /** Sorted by name. @returns {Tile[]} */
  get tiles() {
    const list = [...this.#rooms.values()].sort((a, b) => (a.room < b.room ? -1 : 1));
    return list.map((r) => tile(r, this.#said.get(r.room) ?? ''));
  }
}

/** @param {RoomInfo} r @param {string} said the comment in progress @returns {Tile} */
export function tile(r, said) {
  const status = { state: r.state, chip: r.chip, detail: r.reason, percent: r.percent };
  const c = chip(/** @type {any} */ ({ link: 'open', status, snapshot: { settings: { speech: r.speech } } }));
  const picture = r.source.width > 0;
  return {
    room: r.room,
    href: hrefOf(r.room),
    chip: c,
    words: said || r.newest?.text || 'No comments yet.',
    at: said ? NaN : Date.parse(r.newest?.at ?? ''),
    live: Boolean(said),
    picture,
    none: noPicture(r),
    behind: picture ? `${seconds(r.delay)} behind live` : '',
    aligned: r.alignment_last >= 0 ? `aligned ${millis(r.alignment_last)}` : '',
    late: r.alignment_last > 0.1,
    viewers: r.viewers > 0 ? count(r.viewers, 'viewer') : '',
  };
}

/** @param {RoomInfo} r */
function noPicture(r) {
  if (r.source.width > 0) return r.source.muted ? 'The camera is paused by its owner.' : '';
  if (r.chip === 'loading') return 'The model is loading.';
  if (r.chip === 'failed') return sentence(r.reason ? `The model does not answer: ${r.reason}` : 'The model does not answer');
  if (r.chip === 'reconnecting') return 'The commentator is joining the room.';
  return 'No camera yet.';
}

/**
 * The words of the page without rooms; null with rooms.
 * @param {'connecting' | 'open' | 'lost' | 'locked' | 'gone'} link @param {number} rooms
 * @param {string} [why] how this page's right ended
 * @returns {{words: string, more: string, login?: boolean, line?: boolean} | null}
 */
export function nobody(link, rooms, why) {
  if (link === 'locked') return locked(why);
  if (rooms > 0) return null;
  if (link === 'lost') return { words: 'The server does not answer.', more: 'Retrying.' };
  if (link !== 'open') return { words: 'Loading…', more: '' };
  return {
    words: 'No room has a commentator yet.',
    more: 'Enter a room above, or dispatch the agent by name through LiveKit. Without an agent name, each new room gets a commentator automatically.',
    line: true,
  };
}

/** The line in the header. @param {string} link @param {number} rooms @param {number} retryIn s */
export function headline(link, rooms, retryIn) {
  if (link === 'locked') return 'locked';
  if (link === 'lost') return retryIn >= 1 ? `retrying in ${Math.ceil(retryIn)} s` : 'retrying';
  if (link !== 'open') return 'connecting';
  return rooms === 0 ? 'no rooms' : count(rooms, 'room');
}
