// Takes a screenshot of the demo's page after about a minute of commentary, or as soon as a picture plays by WebRTC.
// usage: node scripts/screenshot.mjs URL DEST [WIDTH HEIGHT [picture]]
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [url, dest, width = '1280', height = '800', what = 'comments'] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), 'touchline-screenshot-'));
const flags = ['--headless=new', '--remote-debugging-pipe', '--no-first-run', '--mute-audio', '--hide-scrollbars',
  '--autoplay-policy=no-user-gesture-required', `--user-data-dir=${profile}`];
if (process.getuid() === 0) flags.push('--no-sandbox');
const browser = spawn(process.env.CHROMIUM ?? 'chromium', flags, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });

// The DevTools protocol over two pipes: JSON messages, each ended by a zero byte.
const waiting = new Map();
let received = '';
browser.stdio[4].setEncoding('utf8').on('data', (chunk) => {
  received += chunk;
  for (let end = received.indexOf('\0'); end >= 0; end = received.indexOf('\0')) {
    const message = JSON.parse(received.slice(0, end));
    received = received.slice(end + 1);
    const request = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error) request?.reject(new Error(message.error.message));
    else request?.resolve(message.result);
  }
});
let requests = 0;
let sessionId;
const call = (method, params = {}) => new Promise((resolve, reject) => {
  const id = ++requests;
  waiting.set(id, { resolve, reject });
  browser.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
});
const value = async (expression) => (await call('Runtime.evaluate', { expression, returnByValue: true })).result.value;

// A minute's worth of comments, one of them being spoken, with its caption and all thumbnails.
const comments = `(() => {
  const video = document.querySelector('video');
  const comments = [...document.querySelectorAll('#list li')];
  return comments.length >= 12 && !comments.slice(0, 4).some((c) => c.textContent.includes('late'))
    && document.querySelector('#chip-words').textContent.toLowerCase() === 'speaking'
    && document.querySelector('#captions').textContent.length > 20
    && [...document.images].every((i) => i.complete) && video.videoWidth > 0 && !video.paused;
})()`;

const picture = `(() => {
  const video = document.querySelector('video');
  return video.videoWidth > 0 && !video.paused && video.getVideoPlaybackQuality().totalVideoFrames > 50;
})()`;
const ready = what === 'picture' ? picture : comments;

try {
  const { targetId } = await call('Target.createTarget', { url: 'about:blank' });
  ({ sessionId } = await call('Target.attachToTarget', { targetId, flatten: true }));
  await call('Emulation.setDeviceMetricsOverride', { width: +width, height: +height, deviceScaleFactor: 1, mobile: false });
  await call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: 'dark' }] });
  await call('Page.navigate', { url });
  const deadline = Date.now() + 300_000;
  while (!await value(ready)) {
    if (Date.now() > deadline) {
      throw new Error(`no ${what === 'picture' ? 'picture' : 'twelve comments, the last four in time,'} at ${new URL(url).origin} within 5 min: is the machine busy?`);
    }
    await new Promise((later) => { setTimeout(later, 250); });
  }
  const { data } = await call('Page.captureScreenshot', { format: 'png' });
  writeFileSync(dest, Buffer.from(data, 'base64'));
} finally {
  browser.kill();
  await new Promise((gone) => { browser.once('exit', gone); });
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
