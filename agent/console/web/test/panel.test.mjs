import test from 'node:test';
import assert from 'node:assert/strict';
import { Order } from '../src/panel.js';

test('an answer is late when that to a newer request is known', () => {
  const order = new Order();
  const [first, second, third] = [order.ask(), order.ask(), order.ask()];
  assert.ok(second());
  assert.ok(!first());
  assert.ok(third());
  assert.ok(third(), 'again');
});

test('what was read before a change is late after it', () => {
  const order = new Order();
  const read = order.ask();
  order.ask()();
  assert.ok(!read());
  assert.ok(order.ask()());
});
