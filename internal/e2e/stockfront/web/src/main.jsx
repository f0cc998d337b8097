// A front end for any LiveKit agent, of @livekit/components-react alone. Server and token come in the
// address: #url=...&token=..., and &only=agent plays nothing of anybody else, as docs/watching.md says how.
// &microphone=on publishes the visitor's microphone.
import {
  RoomAudioRenderer,
  SessionProvider,
  VideoTrack,
  useAgent,
  useLocalParticipant,
  useSession,
  useSessionMessages,
  useTranscriptions,
  useVoiceAssistant,
} from '@livekit/components-react';
import { ParticipantKind, RoomEvent, TokenSource } from 'livekit-client';
import { useEffect } from 'react';
import { createRoot } from 'react-dom/client';

const address = new URLSearchParams(location.hash.slice(1));
const tokens = TokenSource.literal({
  serverUrl: address.get('url'),
  participantToken: address.get('token'),
});
const devices = { tracks: { microphone: { enabled: address.get('microphone') === 'on' } } };
const agentOnly = address.get('only') === 'agent';
const start = agentOnly ? { ...devices, roomConnectOptions: { autoSubscribe: false } } : devices;

function subscribeToAgent(room) {
  const look = () => {
    for (const who of room.remoteParticipants.values()) {
      if (who.kind !== ParticipantKind.AGENT) continue;
      for (const publication of who.trackPublications.values()) publication.setSubscribed(true);
    }
  };
  room.on(RoomEvent.Connected, look).on(RoomEvent.TrackPublished, look);
  return () => room.off(RoomEvent.Connected, look).off(RoomEvent.TrackPublished, look);
}

function Agent() {
  const agent = useAgent();
  const assistant = useVoiceAssistant();
  const { messages } = useSessionMessages();
  const captions = useTranscriptions({
    participantIdentities: [assistant.agent?.identity ?? ''],
    trackSids: [assistant.audioTrack?.publication.trackSid ?? ''],
  });
  const all = useTranscriptions();
  const { microphoneTrack } = useLocalParticipant();
  return (
    <>
      {assistant.videoTrack && <VideoTrack id="picture" trackRef={assistant.videoTrack} />}
      <p id="caption">{captions.at(-1)?.text}</p>
      <p id="microphone">{microphoneTrack?.trackSid}</p>
      <ol id="captions">
        {all.map((c) => (
          <li key={c.streamInfo.id} data-from={c.participantInfo.identity}>{c.text}</li>
        ))}
      </ol>
      <dl>
        <dt>useVoiceAssistant</dt>
        <dd id="assistant-state">{assistant.state}</dd>
        <dt>its agent</dt>
        <dd id="assistant-agent">{assistant.agent?.identity}</dd>
        <dt>its transcription</dt>
        <dd id="assistant-text">{assistant.agentTranscriptions.map((s) => s.text).join(' ')}</dd>
        <dt>useAgent</dt>
        <dd id="agent-state">{agent.state}</dd>
        <dt>its name</dt>
        <dd id="agent-name">{agent.name}</dd>
        <dt>connected</dt>
        <dd id="agent-connected">{String(agent.isConnected)}</dd>
        <dt>failures</dt>
        <dd id="agent-failures">{agent.failureReasons?.join(' ')}</dd>
        <dt>its tracks</dt>
        <dd id="agent-tracks">
          {[agent.cameraTrack, agent.microphoneTrack].map((t) => t?.source ?? 'none').join(' ')}
        </dd>
      </dl>
      <ol id="messages">
        {messages.map((m) => (
          <li key={m.id} data-type={m.type}>{m.message}</li>
        ))}
      </ol>
    </>
  );
}

function App() {
  const session = useSession(tokens);
  useEffect(() => (agentOnly ? subscribeToAgent(session.room) : undefined), [session.room]);
  useEffect(() => {
    session.start(start);
    return () => {
      session.end();
    };
  }, []);
  return (
    <SessionProvider session={session}>
      <Agent />
      <RoomAudioRenderer />
    </SessionProvider>
  );
}

createRoot(document.getElementById('root')).render(<App />);
