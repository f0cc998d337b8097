/** The help drawer. */
import { h } from './panel.js';

export function helpBody() {
  const part = (title, text, id = '') => h('section', { id }, h('h3', {}, title), h('p', {}, text));
  const key = (k, what) => [h('dt', {}, h('kbd', {}, k)), h('dd', {}, what)];
  return h('div', { class: 'help' },
    part('Delay', 'The picture is delayed until the comment on it is ready. “Behind live” is this delay. “Aligned” is the time between a comment and its picture.'),
    part('Score sheet', 'The last 60 seconds, one row per comment: a dot per frame, a thin bar while thinking, a thick bar while speaking, all at the time at which the picture shows them. An aligned comment starts at its last dot; red shows the alignment error. Short marks at the bottom are cycles without a comment.'),
    part('Comments', 'The frames under a comment are those that the model saw. Cycles without a comment are only counted.'),
    part('Instruction', 'An instruction applies from the next frame, for all viewers. So does the Voice switch. “What can I ask?” lists instructions that fit the picture. Volume and mute apply to this browser only.'),
    part('Hearing', 'A microphone icon in the status bar means the room is being transcribed. Hold “Hold to talk” and say an order, or say a wake word first, such as “hey touchline”. “Settings” sets what is recognized.'),
    part('Alerts', 'An alert rule is a sentence, such as “somebody comes to the door”. When enough looks agree, an alert appears over the picture, for all viewers. What the engine sight measures decides the sentences that it understands, also where another engine comments. Other sentences need an engine that reads instructions. The scene engine has rules of its own, such as “motion in left”.'),
    part('Regions', 'Masks, zones and lines over the picture. A privacy mask is black in what Touchline reads, stores and sends. The engine sight has alert rules about zones and lines, such as “a person enters the zone "yard"”.'),
    part('Engines', 'Nano is a small model in the program. It is trained on the generated match and yard only, and reads instructions. The scene engine describes changes in the picture and reads no instructions. Sight finds people, vehicles, animals and text; press b to see them in the picture. A vision model reads any instruction. Choose the engine under “Settings”: the list has those of this program and of model servers on this machine. For another server set inference.remote.url (docs/model-servers.md); for a larger model in the program start with --model (docs/models.md).', 'help-engines'),
    h('section', {}, h('h3', {}, 'Keys'), h('dl', { class: 'keys' },
      ...key('/', 'say what to watch for'), ...key('t', 'held: talk to the commentator'), ...key('m', 'mute'), ...key('c', 'captions'), ...key('b', 'what the engine found'), ...key('f', 'full screen'), ...key('n', 'numbers'), ...key('← →', 'on the score sheet: step through comments'), ...key('Esc', 'close'))));
}
