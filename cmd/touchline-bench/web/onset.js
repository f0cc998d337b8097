// An AudioWorklet that detects onsets of speech as a stage.Viewer does, and tells the moment of each on the context's clock.
registerProcessor('onset', class extends AudioWorkletProcessor {
  #sum = 0; #n = 0; #start = 0; #loud = false; #last = -1;
  process([[pcm]]) {
    for (let i = 0; pcm && i < pcm.length; i++) {
      if (this.#n === 0) this.#start = currentFrame + i;
      this.#sum += pcm[i] ** 2;
      if (++this.#n < sampleRate / 100) continue;
      const at = this.#start / sampleRate, audible = Math.sqrt(this.#sum / this.#n) >= 0.01;
      this.#sum = this.#n = 0;
      if (this.#loud && at - this.#last > 0.3) this.#loud = false;
      if (!audible) continue;
      if (!this.#loud) this.port.postMessage({ at });
      this.#loud = true;
      this.#last = at + 0.01;
    }
    return true;
  }
});
