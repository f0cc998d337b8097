/** How to read this page, in one drawer. */
import { h } from './panel.js';

export function helpBody() {
  const part = (title, text) => h('section', {}, h('h3', {}, title), h('p', {}, text));
  const key = (k, what) => [h('dt', {}, h('kbd', {}, k)), h('dd', {}, what)];
  return h('div', { class: 'help' },
    part('The picture is late on purpose', 'It is held back just long enough for the comment on it to be ready. “Behind live” says how long, “aligned” how far picture and voice are apart.'),
    part('The score sheet', 'The last 60 seconds, one row for each comment. Dots are the frames that were seen, the thin bar is thinking, the thick bar speaking, both where the picture shows them. A comment in step begins on its last dot; red shows how far it missed it. Short marks at the bottom are looks that led to no words.'),
    part('The comments', 'Under each stand the frames it is about. Looks with nothing to say are only counted.'),
    part('The instruction', 'What you type acts on the next frame, for everybody in the room. The volume and the loudspeaker button are yours alone; the Voice switch is for all.'),
    h('section', {}, h('h3', {}, 'Keys'), h('dl', { class: 'keys' },
      ...key('/', 'say what to watch for'), ...key('m', 'mute'), ...key('c', 'captions'), ...key('f', 'full screen'), ...key('n', 'numbers'), ...key('← →', 'on the score sheet: step through comments'), ...key('Esc', 'close'))));
}
