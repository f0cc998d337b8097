/** Rights: what this client may do in the room. The Share drawer makes links that watch and links that steer. */
import * as api from './api.js';
import { Order, h, refill } from './panel.js';
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

/**
 * The rows of the list: each link that was made here, and below it those that were made with it. A link that made others and is not listed
 * has a row too, so that it can be revoked.
 * @param {{id: string, makers?: string[]}[]} links
 */
export function rows(links) {
  const first = links.filter((link) => !link.makers?.length);
  for (const link of links) {
    const id = link.makers?.at(-1);
    if (id && !first.some((known) => known.id === id)) first.push({ id, unlisted: true });
  }
  return first.flatMap((one) => [one, ...links.filter((link) => link.makers?.at(-1) === one.id)]);
}

/** The words for a link in the list. @param {{rights?: string[], name?: string, expires: string, revoked?: boolean, makers?: string[], unlisted?: boolean}} link */
export function aboutLink(link) {
  if (link.unlisted) return 'A link that is not listed here, with which those below were made';
  const does = !link.rights?.length ? 'A link' : STEER.every((r) => link.rights.includes(r)) ? 'Steers' : link.rights.length === 1 ? 'Only watches' : 'Watches and changes';
  return `${link.name ? `${link.name}: ` : ''}${does}, ${link.revoked ? 'revoked' : `until ${dateTime(Date.parse(link.expires))}`}${link.makers?.length ? ', made with the link above' : ''}`;
}

/** Whether other machines can open the page's address. @param {string} host */
export const isLocal = (host) => host === 'localhost' || host.endsWith('.localhost') || /^127\./.test(host) || host === '[::1]';

/** What is easily missed of a link that steers. */
const STEERS_TOO = 'A link that steers also reads what people in the room say, lets the commentator speak and sends it recordings to transcribe.';

const LIVES = [['1h', '1 hour'], ['24h', '1 day'], ['168h', '7 days'], ['720h', '30 days']];

export class Share {
  #what = h('select', { id: 'share-what' }, h('option', { value: 'watch' }, 'only watches'), h('option', { value: 'steer' }, 'steers'));
  #life = h('select', { id: 'share-life' }, ...LIVES.map(([v, w]) => h('option', { value: v, selected: v === '24h' }, w)));
  #link = h('input', { id: 'share-link', readOnly: true, ariaLabel: 'Link' });
  #works = h('small', { role: 'status' }); // about the link that was made
  #said = h('small', { role: 'status' });
  #unread = h('small', { role: 'status' }); // why the list was not read
  #made = h('div', { class: 'url', hidden: true });
  #list = h('ul', { id: 'share-list', class: 'links', tabIndex: -1 });
  #id = ''; // of the link that was made
  #order = new Order();

  /** @param {Location} page */
  constructor(page) {
    this.page = page;
    const copy = h('button', { class: 'act', type: 'button' }, 'Copy');
    copy.addEventListener('click', () => void this.#copy());
    this.#link.addEventListener('focus', () => this.#link.select());
    this.#made.append(this.#link, copy, this.#works);
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
      form, this.#made, this.#said, this.#list, this.#unread);
    if (isLocal(page.hostname)) {
      this.body.append(h('p', { class: 'what' }, 'This page is open on this machine only. Start with --listen 0.0.0.0:8199 and open it by the address that is printed, so that links work elsewhere.'));
    }
  }

  /** Shows the links of the room. */
  async refresh() {
    const newest = this.#order.ask();
    try {
      const { links } = await api.links();
      if (!newest()) return;
      this.#unread.textContent = '';
      if (links.some((link) => link.id === this.#id && link.revoked)) this.#made.hidden = true;
      refill(this.#list, rows(links).map((link) => {
        const row = h('li', {}, h('span', {}, aboutLink(link)));
        if (!link.revoked) {
          const revoke = h('button', { class: 'quiet', type: 'button', id: `share-revoke-${link.id}`, title: 'Ends everything that it opened' }, 'Revoke');
          if (link.unlisted) revoke.dataset.needs = 'process';
          revoke.addEventListener('click', () => void this.#revoke(link.id));
          row.append(revoke);
        }
        return row;
      }));
    } catch (err) {
      if (newest()) this.#unread.textContent = err.message;
    }
  }

  async #revoke(id) {
    try {
      await api.revokeLink(id);
      if (id === this.#id) this.#made.hidden = true;
      this.#said.textContent = 'Revoked. It works no longer, nor do links that its holder made.';
    } catch (err) {
      this.#said.textContent = err.message;
    }
    await this.refresh();
  }

  async #make() {
    const what = this.#what.value;
    try {
      const made = await api.makeLink([what], this.#life.value);
      this.#id = made.id;
      this.#link.value = linkTo(this.page, made.token);
      this.#made.hidden = false;
      this.#said.textContent = '';
      this.#works.textContent = `It ${what === 'steer' ? 'steers' : 'only watches'} and works until ${dateTime(Date.parse(made.expires))}.`;
      this.#link.focus();
      await this.refresh();
    } catch (err) {
      this.#said.textContent = err.message;
    }
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(this.#link.value);
      this.#works.textContent = 'Copied.';
    } catch {
      this.#link.select(); // without TLS browsers have no clipboard
      this.#works.textContent = 'Selected: copy it with Ctrl+C.';
    }
  }
}
