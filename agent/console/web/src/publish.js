/**
 * This browser as a camera: a second, separate connection to the room that
 * publishes one picture, with the sound of a file, and watches nothing.
 */
import * as api from './api.js';
import { loadLiveKit, signalURL, roomSentence } from './room.js';

/** One layer in full size; a lower frame rate rather than a smaller picture. */
const ENCODING = { maxBitrate: 2_500_000, maxFramerate: 30 };

/** A refusal of the camera in words. @param {unknown} err */
export function cameraSentence(err) {
  const name = err instanceof Error ? err.name : '';
  switch (name) {
    case 'NotAllowedError':
    case 'SecurityError':
      return 'The browser was not allowed to use the camera. Allow it beside the address and try again.';
    case 'NotFoundError':
    case 'OverconstrainedError':
      return 'This device has no camera that fits.';
    case 'NotReadableError':
    case 'AbortError':
      return 'The camera is in use by another program.';
    case 'InsecureError':
      return 'Browsers allow the camera on secure pages only. Open this page by https, or on localhost.';
    case 'FileError':
    case 'NoScreenError':
      return err.message;
    default:
      return roomSentence(err) || 'The camera could not be published.';
  }
}

function named(name, message) {
  const err = new Error(message);
  err.name = name;
  return err;
}

/** @returns {Promise<MediaStreamTrack>} */
export async function cameraTrack() {
  if (!navigator.mediaDevices?.getUserMedia) throw named('InsecureError', 'no camera without a secure context');
  const stream = await navigator.mediaDevices.getUserMedia({
    audio: false,
    video: { width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 30, max: 30 }, facingMode: 'environment' },
  });
  return stream.getVideoTracks()[0];
}

/** A window or the whole screen, as the reader chooses. @returns {Promise<MediaStreamTrack>} */
export async function screenTrack() {
  if (!navigator.mediaDevices?.getDisplayMedia) throw named('NoScreenError', 'This browser cannot share the screen here. Open this page by https, or on localhost.');
  try {
    const stream = await navigator.mediaDevices.getDisplayMedia({ audio: false, video: { frameRate: { ideal: 15, max: 30 } } });
    return stream.getVideoTracks()[0];
  } catch (err) {
    if (err?.name === 'NotAllowedError') throw named('NoScreenError', 'No screen was chosen.');
    throw err;
  }
}

/**
 * Plays a file in a loop and returns its picture, and its sound if any, as tracks. The
 * loudspeaker is silent.
 * @param {File} file
 * @returns {Promise<{track: MediaStreamTrack, sound?: MediaStreamTrack, end: () => void}>}
 */
export async function fileTrack(file) {
  const video = document.createElement('video');
  const url = URL.createObjectURL(file);
  let timer = 0;
  let audio = /** @type {AudioContext | null} */ (null);
  const end = () => {
    clearInterval(timer);
    video.pause();
    video.removeAttribute('src');
    video.load();
    URL.revokeObjectURL(url);
    void audio?.close();
  };
  video.src = url;
  video.loop = true;
  video.muted = true;
  video.playsInline = true;
  try {
    await new Promise((resolve, reject) => {
      video.onloadeddata = resolve;
      video.onerror = () => reject(named('FileError', 'This browser cannot play that file. MP4 (H.264) and WebM play nearly everywhere.'));
    });
    await video.play();
    if (!video.videoWidth) throw named('FileError', 'The file has no video.');
    const capture = (video.captureStream ?? video.mozCaptureStream)?.call(video);
    if (video.mozHasAudio ?? (capture?.getAudioTracks().length || video.audioTracks?.length)) audio = await running();
    // An AudioContext sends the sound to the track and not to the loudspeaker.
    const out = audio?.createMediaStreamDestination();
    if (audio && out) {
      audio.createMediaElementSource(video).connect(out);
      video.muted = false;
      if (video.paused) await video.play();
    }
    const sound = out?.stream.getAudioTracks()[0];
    const track = capture?.getVideoTracks()[0];
    if (track) return { track, sound, end };
    // Safari has no captureStream on video: a canvas replaces it.
    const canvas = document.createElement('canvas');
    canvas.width = video.videoWidth;
    canvas.height = video.videoHeight;
    const ctx = canvas.getContext('2d');
    timer = setInterval(() => ctx.drawImage(video, 0, 0), 33);
    return { track: canvas.captureStream(30).getVideoTracks()[0], sound, end };
  } catch (err) {
    end();
    throw err;
  }
}

/** A running AudioContext, which browsers allow after a click on the page. @returns {Promise<AudioContext | null>} */
async function running() {
  const audio = new AudioContext({ sampleRate: 48000 });
  await Promise.race([audio.resume().catch(() => {}), new Promise((over) => setTimeout(over, 1000))]);
  if (audio.state === 'running') return audio;
  void audio.close();
  return null;
}

export class Publisher {
  /** @type {import('livekit-client').Room | null} */
  #room = null;
  #end = () => {};
  /** @type {MediaStreamTrack | null} */
  track = null;
  identity = '';
  /** Whether it is a screen. */
  screen = false;
  /** Called when publishing ends without a call of stop. */
  onEnded = (/** @type {string} */ _sentence) => {};

  get active() {
    return this.#room !== null;
  }

  /**
   * Publishes a track as a camera, or as a shared screen.
   * @param {MediaStreamTrack} track
   * @param {() => void} [end] releases the source of the track
   * @param {boolean} [screen]
   * @param {MediaStreamTrack} [sound] that belongs to it
   * @returns {Promise<string>} the identity to watch
   */
  async publish(track, end = () => {}, screen = false, sound = undefined) {
    await this.stop();
    try {
      const [lk, grant] = await Promise.all([loadLiveKit(), api.roomToken('camera', screen ? 'Browser screen' : 'Browser camera')]);
      const room = new lk.Room({ adaptiveStream: false, dynacast: false });
      await room.connect(signalURL(grant.url), grant.token, { autoSubscribe: false });
      try {
        await room.localParticipant.publishTrack(track, {
          source: screen ? lk.Track.Source.ScreenShare : lk.Track.Source.Camera,
          name: screen ? 'screen' : 'camera',
          simulcast: false,
          degradationPreference: 'maintain-resolution',
          videoEncoding: ENCODING,
        });
        if (sound) {
          await room.localParticipant.publishTrack(sound, {
            source: lk.Track.Source.Microphone,
            name: 'sound',
            audioPreset: { maxBitrate: 64_000 },
            dtx: false,
            red: false,
          });
        }
      } catch (err) {
        await room.disconnect();
        throw err;
      }
      this.#room = room;
      this.#end = end;
      this.track = track;
      this.identity = grant.identity;
      this.screen = screen;
      const over = (sentence) => {
        if (this.#room !== room) return;
        void this.stop().then(() => this.onEnded(sentence));
      };
      track.addEventListener('ended', () => over(screen ? 'Screen sharing has ended.' : 'The camera was switched off.'));
      room.on(lk.RoomEvent.Disconnected, () => over('Your camera lost its connection to the room.'));
      return grant.identity;
    } catch (err) {
      track.stop();
      end();
      throw err;
    }
  }

  async stop() {
    const room = this.#room;
    this.#room = null;
    this.identity = '';
    this.screen = false;
    this.track?.stop();
    this.track = null;
    this.#end();
    this.#end = () => {};
    await room?.disconnect().catch(() => {});
  }
}
