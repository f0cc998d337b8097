/**
 * The answers and events of the server, as far as the page reads them. docs/api.md is the
 * contract; times are RFC 3339 strings, durations seconds.
 *
 * @typedef {object} Status
 * @property {string} state LiveKit's agent state
 * @property {string} [detail] the reason
 * @property {number} percent of the model's loading
 * @property {string} [hearing] the mode in which people are heard: orders, captions, all
 * @property {string} chip waiting, loading, failed, watching, thinking, speaking, silent, idle, reconnecting
 *
 * @typedef {object} Profile
 * @property {string} name
 * @property {string} label
 * @property {string} prompt
 * @property {string} suggestion
 * @property {string} [language] @property {string} [voice] while it is in force
 * @property {boolean} [speech] @property {number} [voice_gain] meanwhile, dB
 * @property {string} [kind] built-in, changed, own
 *
 * @typedef {object} Settings
 * @property {boolean} speech
 * @property {number} capture_fps
 * @property {number} frames_per_look
 * @property {number} frame_stride
 *
 * @typedef {object} SourceInfo
 * @property {string} [identity]
 * @property {string} [track]
 * @property {string} [codec]
 * @property {number} width
 * @property {number} height
 * @property {number} fps
 * @property {boolean} [muted]
 *
 * @typedef {object} Source what the server brings into the room
 * @property {string} id
 * @property {string} kind rtsp, http, file, webcam, whip
 * @property {string} name
 * @property {string} [address] without secrets
 * @property {string} identity
 * @property {boolean} [fixed]
 * @property {boolean} watched
 * @property {string} state connecting, live, waiting, stalled, failed, ended
 * @property {string} since
 * @property {string} [reason]
 * @property {string} [codec]
 * @property {number} width
 * @property {number} height
 * @property {number} fps
 * @property {number} bit_rate bit/s
 * @property {number} key_frame_interval s
 * @property {boolean} sound
 * @property {string} [transcoded] why
 * @property {string} [advice]
 *
 * @typedef {object} RoomCamera
 * @property {string} identity
 * @property {string} [name]
 * @property {string} kind camera, screen_share, unknown
 * @property {boolean} [muted]
 * @property {boolean} watched
 *
 * @typedef {object} World
 * @property {string} name
 * @property {string[]} [teams] of the match, by the colours of their shirts
 * @property {Grade} [grade] of the last minute's comments, by the truth
 *
 * @typedef {object} Grade
 * @property {number} right @property {number} wrong
 * @property {number} unjudged comments that say nothing that can be judged
 * @property {number} [missed] goals of the match, or comings and goings in the yard; unknown while an instruction is active
 *
 * @typedef {object} EngineChoice
 * @property {string} engine scene, nano, sight, remote, minicpmo
 * @property {string} [model] @property {string} [server]
 *
 * @typedef {EngineChoice & {program?: string, in_force: boolean, notes?: string, refused?: string}} EngineOption
 * @typedef {{id: string, language: string, speaks: boolean}} VoiceOption
 * @typedef {EngineChoice & {percent: number, detail?: string, pauses?: boolean}} EngineChange
 *
 * @typedef {object} Done a command that acted
 * @property {string} command @property {string} effect a sentence @property {string} by @property {string} at
 *
 * @typedef {object} Snapshot
 * @property {Source[]} [sources]
 * @property {boolean} [scene] there is a built-in camera
 * @property {string[]} [worlds] the generated worlds that it can show
 * @property {World} [world] the one that is watched
 * @property {Status} status
 * @property {string} engine
 * @property {string} [engine_note]
 * @property {EngineChange} [engine_change] that is under way
 * @property {string} [engine_problem] why the last change failed
 * @property {{instructions: boolean, languages?: string[], structured?: boolean, speech?: boolean}} [capabilities] of the engine
 * @property {string} monitor_mode
 * @property {string} instruction
 * @property {string} [instruction_by]
 * @property {{instruction: string, by: string, acts_at: string}[]} [waiting] instructions that act when the one in force has held
 * @property {Done} [command] the last command that acted
 * @property {string} active_profile
 * @property {Profile[]} profiles
 * @property {Settings} settings
 * @property {number} [regions_version] another one after each change of the regions
 * @property {boolean} [kept] changes last across restarts
 * @property {string} [state_problem] why they are not kept at present
 * @property {{waiting: number, kept: boolean, problem?: string}} [alert_queue] alerts that wait for webhooks and MQTT; absent without such a target
 * @property {boolean} tts_enabled
 * @property {number} delay
 * @property {number} target_delay
 * @property {number} alignment_last
 * @property {number} alignment_p95
 * @property {number} comments
 * @property {number} silent
 * @property {number} skipped
 * @property {number} [repeated]
 * @property {number} late
 * @property {number} dropped
 * @property {number} failed
 * @property {string} [voice_problem] why speech fails
 * @property {number} long_side px of the pictures the model sees
 * @property {number} max_slices
 * @property {number} window_size pictures
 * @property {SourceInfo} source
 *
 * @typedef {object} SpokenOrder
 * @property {string} text @property {string} [command] @property {string} [effect] a sentence @property {string} [refused] why not
 *
 * @typedef {object} Heard what somebody in the room said
 * @property {string} segment of an utterance; a later text replaces an earlier one
 * @property {string} identity @property {string} [name] @property {string} [language]
 * @property {string} text "" takes it back
 * @property {boolean} final @property {boolean} caption
 * @property {SpokenOrder} [order]
 *
 * @typedef {object} Caption
 * @property {string} segment
 * @property {number} cycle
 * @property {string} delta
 * @property {string} text
 * @property {boolean} final
 * @property {boolean} spoken
 *
 * @typedef {object} CycleRecord
 * @property {number} cycle
 * @property {string} outcome spoken, shown, silent, skipped, repeated, dropped, cut, failed
 * @property {string} [reason]
 * @property {string} [text]
 * @property {string} [instruction]
 * @property {number[]} frame_ids
 * @property {string[]} [frame_at]
 * @property {string} [oldest_frame_at]
 * @property {string} [newest_frame_at]
 * @property {string} [inference_start]
 * @property {string} [inference_end]
 * @property {number} inference_sec
 * @property {number} latency_sec
 * @property {number} first_word_sec
 * @property {number} first_audio_sec
 * @property {number} ready_sec
 * @property {number} target_delay
 * @property {number} delay
 * @property {string} [shown_at]
 * @property {string} [started_at]
 * @property {string} [ended_at]
 * @property {number} alignment_error
 * @property {boolean} aligned
 * @property {boolean} late
 * @property {number} audio_sec
 * @property {number} scene_diff
 * @property {number} [tokens]
 * @property {{pts: number, text: string}[]} [facts] the measured events that it tells
 *
 * @typedef {{x0: number, y0: number, x1: number, y1: number}} Box shares of the picture
 *
 * @typedef {object} Thing
 * @property {string} name @property {number} [track] its number, if it is followed @property {number} score
 * @property {number} x0 @property {number} y0 @property {number} x1 @property {number} y1 shares of the picture
 *
 * @typedef {object} Region a privacy mask, zone or line
 * @property {string} name @property {string} kind mask, zone, line
 * @property {number} aspect @property {number[][]} points shares of width and height
 * @property {string} [by] @property {boolean} rests @property {string} [note]
 *
 * @typedef {object} Regions
 * @property {Region[]} regions @property {number} [aspect] @property {boolean} mask_delayed @property {string} [covered]
 *
 * @typedef {object} Sight what the engine found in a picture
 * @property {string} at when the picture arrived @property {number} pts s
 * @property {Thing[]} things @property {{pts: number, text: string}[]} facts the last ones, oldest first
 *
 * @typedef {object} RawLook agent.RawLook in docs/agent.md
 * @property {string} kind comment, retry, rules, trial, next
 * @property {string} at @property {string} engine
 * @property {{id: number, width: number, height: number}[]} [pictures]
 * @property {string} system @property {string} text @property {string} answer
 * @property {{request: string, reasoning?: string, answer: string, error?: string}[]} [exchanges]
 * @property {string} [error] @property {string} [outcome] @property {string} [reason] @property {boolean} [cut]
 * @property {number} first_word_sec @property {number} answer_sec
 * @property {number} [max_tokens] @property {number} [max_slices] @property {string} [language]
 * @property {boolean} spoken @property {boolean} structured @property {Record<string, number>} sampling @property {unknown} [schema]
 *
 * @typedef {object} Alert one phase; docs/alerts.md
 * @property {string} id the same in all phases
 * @property {string} phase new, shown, cleared
 * @property {string} at
 * @property {string} [cleared_at] set by the page
 * @property {string} rule
 * @property {string} name
 * @property {string} level info, warning, critical
 * @property {string} reason
 * @property {number} frame_id
 * @property {Box} [box] the thing in the frame, of an alert by facts
 *
 * @typedef {object} Rule
 * @property {string} id
 * @property {string} when
 * @property {string} [name] @property {string} [level] @property {string} [hours] @property {string} [zone] @property {string[]} [days]
 * @property {string} [votes] @property {string} [cadence] @property {string} [pause] @property {boolean} [interrupt]
 * @property {string} [by] what decides it: auto, facts, model
 * @property {string} [problem] why the engine cannot be asked for it
 * @property {string} [snoozed_until] @property {string} [snoozed_by]
 * @property {boolean} active @property {boolean} on
 * @property {number} looks @property {number} late @property {number} unanswered
 */
export {};
