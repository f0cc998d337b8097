/** Rights: what this client may do in the room. The Share drawer makes links that watch and links that steer. */
import * as api from './api.js';
import { h } from './panel.js';
import { dateTime } from './words.js';

const STEER = ['watch', 'instruct', 'settings', 'sources', 'rules'];

/**
 * The values of data-may on the page's body, which show and hide what has data-needs.
 * @param {string[]} rights
 */
export function mays(rights) {
  return [...rights, ...(STEER.every((r) => rights.includes(r)) ? ['steer'] : [])].join(' ');
}

/** The words for a client that may not steer. @param {{rights: string[], expires?: string}} who */
export function terms(who) {
  if (STEER.every((r) => who.rights.includes(r))) return '';
  const may = who.rights.filter((r) => r !== 'watch' && STEER.includes(r));
  const until = who.expires ? ` until ${dateTime(Date.parse(who.expires))}` : '';
  return `This link lets you watch${may.length ? ` and change ${may.map((r) => ({ instruct: 'the instruction' })[r] ?? r).join(', ')}` : ''}${until}. To do more, ask for a link that steers.`;
}

/** The address of a link. @param {{origin: string, pathname: string}} page @param {string} token */
export const linkTo = (page, token) => `${page.origin}${page.pathname}#token=${token}`;

/** The words for a link in the list. @param {{rights?: string[], name?: string, expires: string, revoked?: boolean}} link */
export function aboutLink(link) {
  const does = !link.rights?.length ? 'A link' : STEER.every((r) => link.rights.includes(r)) ? 'Steers' : link.rights.length === 1 ? 'Only watches' : 'Watches and changes';
  return `${link.name ? `${link.name}: ` : ''}${does}, ${link.revoked ? 'revoked' : `until ${dateTime(Date.parse(link.expires))}`}`;
}

/** Whether other machines can open the page's address. @param {string} host */
export const isLocal = (host) => host === 'localhost' || host.endsWith('.localhost') || /^127\./.test(host) || host === '[::1]';

/** What is easily missed of a link that steers. */
export const STEERS_TOO = 'A link that steers also reads what people in the room say, lets the commentator speak and sends it recordings to transcribe.';

const LIVES = [['1h', '1 hour'], ['24h', '1 day'], ['168h', '7 days'], ['720h', '30 days']];

export class Share {
  #what = h('select', { id: 'share-what' }, h('option', { value: 'watch' }, 'only watches'), h('option', { value: 'steer' }, 'steers'));
  #life = h('select', { id: 'share-life' }, ...LIVES.map(([v, w]) => h('option', { value: v, selected: v === '24h' }, w)));
  #link = h('input', { id: 'share-link', readOnly: true, ariaLabel: 'Link' });
  #said = h('small', { role: 'status' });
  #made = h('div', { class: 'url', hidden: true });
  #list = h('ul', { id: 'share-list', class: 'links' });

  /** @param {Location} page */
  constructor(page) {
    this.page = page;
    const copy = h('button', { class: 'act', type: 'button' }, 'Copy');
    copy.addEventListener('click', () => void this.#copy());
    this.#link.addEventListener('focus', () => this.#link.select());
    this.#made.append(this.#link, copy);
    const form = h('form', { class: 'share' },
      h('label', { for: 'share-what' }, 'A link that'), this.#what,
      h('label', { for: 'share-life' }, 'works for'), this.#life,
      h('button', { class: 'act' }, 'Make link'));
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      void this.#make();
    });
    this.body = h('div', { class: 'sharing' },
      h('p', { class: 'what' }, 'Who watches sees the picture and reads and hears the comments. Who steers may also change everything in this room.'),
      h('p', { class: 'what' }, STEERS_TOO),
      form, this.#made, this.#said, this.#list);
    if (isLocal(page.hostname)) {
      this.body.append(h('p', { class: 'what' }, 'This page is open on this machine only. Start with --listen 0.0.0.0:8199 and open it by the address that is printed, so that links work elsewhere.'));
    }
  }

  /** Shows the links of the room. */
  async refresh() {
    try {
      const { links } = await api.links();
      this.#list.replaceChildren(...links.map((link) => {
        const row = h('li', {}, h('span', {}, aboutLink(link)));
        if (!link.revoked) {
          const revoke = h('button', { class: 'quiet', type: 'button', title: 'Ends everything that it opened' }, 'Revoke');
          revoke.addEventListener('click', () => void this.#revoke(link.id));
          row.append(revoke);
        }
        return row;
      }));
    } catch (err) {
      this.#said.textContent = err.message;
    }
  }

  async #revoke(id) {
    try {
      await api.revokeLink(id);
      this.#said.textContent = 'Revoked. It works no longer, nor do links that its holder made.';
    } catch (err) {
      this.#said.textContent = err.message;
    }
    await this.refresh();
  }

  async #make() {
    try {
      const made = await api.makeLink([this.#what.value], this.#life.value);
      this.#link.value = linkTo(this.page, made.token);
      this.#made.hidden = false;
      this.#said.textContent = `It ${this.#what.value === 'steer' ? 'steers' : 'only watches'} and works until ${dateTime(Date.parse(made.expires))}.`;
      this.#link.focus();
      await this.refresh();
    } catch (err) {
      this.#said.textContent = err.message;
    }
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(this.#link.value);
      this.#said.textContent = 'Copied.';
    } catch {
      this.#link.select(); // without TLS browsers have no clipboard
      this.#said.textContent = 'Selected: copy it with Ctrl+C.';
    }
  }
}
