// Package qwen3asr is the engine of speech recognition with Qwen3-ASR, and of word times with
// Qwen3-ForcedAligner: it turns sound into text, for many recordings and speakers at once on one device.
//
// It hears mono sound at 16 kHz. Finding speech in a stream, formats of sound, and HTTP are others' part.
package qwen3asr
