// Records, in the page: the moment on screen and the counter of each picture of the room (by requestVideoFrameCallback) or over HTTP (by
// animation frames), and the moment of each onset of speech at the loudspeaker, in ms of the epoch.
(() => {
// Reads the frame counter, the strip of squares in the lower right corner (see package worlds), in a video, an image or a canvas of a
// width and height: -1 without one.
const canvas = new OffscreenCanvas(1, 1);
const pen = canvas.getContext('2d', { willReadFrequently: true });
const crc = (n) => { let c = 0xff; for (const b of [n >> 16 & 255, n >> 8 & 255, n & 255]) { c ^= b;
  for (let i = 0; i < 8; i++) c = c & 0x80 ? (c << 1 ^ 7) & 255 : c << 1 & 255; } return c; };
const counter = (picture, w, h) => {
  const u = w / 80, left = w - 19 * u, top = h - 5 * u;
  canvas.width = Math.ceil(18 * u); canvas.height = Math.ceil(4 * u);
  pen.drawImage(picture, left, top, canvas.width, canvas.height, 0, 0, canvas.width, canvas.height);
  const d = pen.getImageData(0, 0, canvas.width, canvas.height).data;
  const bit = (i) => { const x = Math.floor((i % 16 + 1.5) * u), y = Math.floor((Math.floor(i / 16) + 1.5) * u);
    return d[(y * canvas.width + x) * 4 + 1] > 127 ? 1 : 0; };
  let n = 0, c = 0;
  for (let i = 0; i < 24; i++) n = n * 2 + bit(i);
  for (let i = 24; i < 32; i++) c = c * 2 + bit(i);
  return crc(n) === c ? n : -1;
};
const probe = window.probe = { pictures: [], onsets: [] };
const epoch = performance.timeOrigin;
const watch = (video) => {
  const look = (_, m) => {
    probe.pictures.push([epoch + m.expectedDisplayTime, counter(video, video.videoWidth, video.videoHeight)]);
    video.requestVideoFrameCallback(look);
  };
  video.requestVideoFrameCallback(look);
};
const watchHTTP = (img) => { // an image or a canvas
  let last = -1;
  const look = (now) => {
    const w = img.naturalWidth ?? img.width;
    if (!img.hidden && w > 0) {
      const n = counter(img, w, img.naturalHeight ?? img.height);
      if (n !== last) probe.pictures.push([epoch + now, n]);
      last = n;
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
};
// The moments of context and page, some of the last seconds: single ones are off on a busy machine. Firefox waits
// for another process to answer, so not often.
const listen = async (ctx, connect) => {
  await ctx.audioWorklet.addModule('/onset.js');
  const tap = new AudioWorkletNode(ctx, 'onset', { numberOfOutputs: 0, channelCount: 1, channelCountMode: 'explicit' });
  const ahead = [];
  setInterval(() => {
    const t = ctx.getOutputTimestamp();
    if (!(t.contextTime > 0)) return;
    ahead.push(epoch + Math.max(t.performanceTime - t.contextTime * 1000, // in Firefox it lacks the latency
      performance.now() + (ctx.outputLatency - ctx.currentTime) * 1000));
    if (ahead.length > 20) ahead.shift();
  }, 500);
  tap.port.onmessage = ({ data }) => {
    if (ahead.length) probe.onsets.push(data.at * 1000 + ahead.toSorted((a, b) => a - b)[ahead.length >> 1]);
    setTimeout(() => connect(tap), 1000);
  };
  connect(tap);
};
const connect = AudioNode.prototype.connect;
AudioNode.prototype.connect = function (to, ...rest) {
  if (to instanceof AudioDestinationNode) listen(this.context, (tap) => connect.call(this, tap));
  return connect.call(this, to, ...rest);
};
addEventListener('DOMContentLoaded', () => {
  const video = document.getElementById('picture'), plain = document.getElementById('picture-http');
  const audio = document.getElementById('sound') ?? video;
  watch(video);
  if (plain) watchHTTP(plain);
  let heard = null;
  setInterval(() => {
    const track = audio.srcObject?.getAudioTracks()[0];
    if (!track || track === heard) return;
    heard = track;
    const ctx = new AudioContext(); // at the rate of the element: Firefox puts a queue between two rates
    let source = null;
    listen(ctx, (tap) => { // anew at each onset: after a stall of the machine its queue stays longer
      const next = ctx.createMediaStreamSource(new MediaStream([track]));
      source?.disconnect();
      source = next;
      source.connect(tap);
    });
  }, 100);
});
})();
