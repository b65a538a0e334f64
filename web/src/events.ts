// Server-sent events, from the bytes of a fetch.

export type Message = { event: string; data: string };

// Takes text as it comes, cut anywhere; gives the messages that are complete.
export class MessageReader {
  private rest = '';
  private event = '';
  private data: string[] = [];
  private endedWithReturn = false;

  feed(text: string): Message[] {
    // CR, LF and CR LF end a line. A CR at the end of a piece has ended its line already: an LF that comes next belongs to it.
    if (this.endedWithReturn && text.startsWith('\n')) text = text.slice(1);
    if (text === '') return [];
    this.endedWithReturn = text.endsWith('\r');
    const lines = (this.rest + text).split(/\r\n|\r|\n/);
    this.rest = lines.pop()!;
    const out: Message[] = [];
    for (const line of lines) {
      if (line !== '') {
        this.take(line);
        continue;
      }
      if (this.data.length > 0) out.push({ event: this.event || 'message', data: this.data.join('\n') });
      this.event = '';
      this.data = [];
    }
    return out;
  }

  private take(line: string): void {
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.event = value;
    if (field === 'data') this.data.push(value);
  }
}

// Until the stream ends; throws when it breaks.
export async function follow(answer: Response, heard: (message: Message) => void): Promise<void> {
  if (answer.body === null) return;
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  const messages = new MessageReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const message of messages.feed(decoder.decode(value, { stream: true }))) heard(message);
  }
}
