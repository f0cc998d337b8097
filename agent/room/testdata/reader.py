"""Joins rooms with LiveKit's Python SDK (URL and tokens in the environment) and prints what comes, one JSON object a line."""

import asyncio
import json
import os

from livekit import rtc

tasks = set()


def say(kind, **fields):
    print(json.dumps({"kind": kind, **fields}), flush=True)


async def read(reader, identity):
    text = await reader.read_all()
    say("stream", text=text, identity=identity, attributes=dict(reader.info.attributes))


async def watch(token):
    room = rtc.Room()

    @room.on("transcription_received")
    def _(segments, participant, publication):
        for s in segments:
            say("segment", text=s.text, identity=participant.identity if participant else "", final=s.final,
                track=publication.sid if publication else "", language=s.language, id=s.id)

    def stream(reader, identity):
        task = asyncio.create_task(read(reader, identity))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    room.register_text_stream_handler("lk.transcription", stream)
    await room.connect(os.environ["LIVEKIT_URL"], token, rtc.RoomOptions(auto_subscribe=False))
    say("joined")
    while True:
        say("knows", tracks=[p.sid for who in room.remote_participants.values() for p in who.track_publications.values()])
        await asyncio.sleep(0.2)


async def main():
    await asyncio.gather(*(watch(token) for token in os.environ["LIVEKIT_TOKENS"].split()))


asyncio.run(main())
