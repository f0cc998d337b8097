/** What a viewer can ask, without a DOM. */

/**
 * @typedef {object} Asks
 * @property {string} lang of the texts
 * @property {string[]} orders
 * @property {string[]} questions
 */

// The wordings are among those that nano was trained on (worlds/train/words); other engines understand them as well.

/** @param {string} [team] a team of the match */
const match = (team) => ({
  lang: 'en',
  orders: [
    'Only tell me about goals.', 'Tell me the score every minute.', ...(team ? [`Only talk about ${team}.`] : []), 'Tell me when somebody shoots.',
    'Tell me when the lights change.', 'Keep it short.', 'Comment on the match.',
  ],
  questions: ["What's the score?", 'Who has the ball?', 'Who is ahead?', 'How many goals have there been?'],
});

const partido = {
  lang: 'es',
  orders: [
    'Dime solo los goles.', 'Dime el marcador cada minuto.', 'Avísame si alguien tira.', 'Avísame si cambia la luz.', 'Sé breve.', 'Comenta el partido.',
  ],
  questions: ['¿Cómo van?', '¿Quién tiene el balón?', '¿Quién gana?', '¿Cuántos goles hay?'],
};

const patio = {
  lang: 'es',
  orders: [
    'Avísame cuando llega alguien.', 'Solo la gente de rojo.', 'Solo los paquetes.', 'Ignora al perro.', 'Vigila el portón.',
    'Avísame cuando se apaga la farola.', 'Comenta el patio.',
  ],
  questions: ['¿Quién está en el portón?', '¿Hay un paquete en la puerta?', '¿Cuántas personas hay?', '¿De qué color es el coche?', '¿Llueve?'],
};

const yard = {
  lang: 'en',
  orders: [
    'Tell me when somebody comes.', 'Only tell me about red coats.', 'Only tell me about parcels.', 'Ignore the dog.', 'Watch the gate.',
    'Tell me when the lamp fails.', 'Watch the yard.',
  ],
  questions: ['Who is at the gate?', 'Is there a parcel at the door?', 'How many people are there?', 'What colour is the car?', 'Is it raining?'],
};

/**
 * Orders and questions for the engine and the picture at hand; null where none are understood.
 * @param {import('./types.js').Snapshot | null} s
 * @returns {Asks | null}
 */
export function asks(s) {
  if (!s || s.capabilities?.instructions === false) return null;
  const spanish = /^es\b/i.test(s.settings?.language ?? '');
  if (s.world?.name === 'match') return spanish ? partido : match(s.world.teams?.[0]);
  if (s.world?.name === 'yard') return spanish ? patio : yard;
  if (s.engine === 'nano') return null; // it knows no other pictures
  return {
    lang: 'en',
    orders: [...new Set((s.profiles ?? []).map((p) => p.suggestion).filter(Boolean))],
    questions: ['What is happening?', 'How many people are there?', 'What has changed?'],
  };
}
