// A handler in JavaScript: the dialogue of crates/wire/src/function.rs over the channel.
//
// Node cannot fork, so an instance is executed, loaded and paused before it is needed. Each frame
// has 4 bytes of length (little endian), 1 byte of kind, 3 bytes of zero, then JSON. Invariant:
// each call gets exactly one answer, and what is no valid frame ends its connection only.

import { readFileSync } from "node:fs";
import { createServer } from "node:net";

const [LOAD, READY, CALL, RETURN, FAILURE] = [1, 2, 3, 4, 5];
const HEADER_BYTES = 8;
const MOST_BYTES = 256 << 20;

const modules = new Map();

/** The exports of the code file, which is evaluated once however many connections ask. */
function module(path) {
  if (!modules.has(path)) {
    const { text } = JSON.parse(readFileSync(path, "utf8"));
    modules.set(path, import(`data:text/javascript,${encodeURIComponent(text)}`));
  }
  return modules.get(path);
}

function frame(kind, message) {
  const payload = Buffer.from(JSON.stringify(message ?? null));
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32LE(payload.length, 0);
  header.writeUInt8(kind, 4);
  return Buffer.concat([header, payload]);
}

function failure(kind, name, error) {
  const exception = `${error?.name ?? "Error"}: ${error?.message ?? error}`;
  return frame(FAILURE, { kind, function: name, exception, failed: 1, calls: 1 });
}

/** Answers one connection: what it loaded is called until the other side ends. */
class Dialogue {
  #handler;
  #name = "";

  async answer(kind, payload) {
    const message = JSON.parse(payload);
    if (kind === LOAD) return this.#load(message);
    if (kind === CALL && this.#handler) return this.#call(message);
    throw new Error(`a frame of kind ${kind} came where none was due`);
  }

  async #load({ code, function: name }) {
    this.#name = name;
    try {
      this.#handler = (await module(code))[name];
    } catch (error) {
      return failure("load", name, error);
    }
    if (typeof this.#handler === "function") return frame(READY, { pid: process.pid });
    return failure("load", name, new Error("the code exports no function of that name"));
  }

  async #call({ event }) {
    try {
      return frame(RETURN, await this.#handler(event));
    } catch (error) {
      return failure("raised", this.#name, error);
    }
  }
}

async function serve(socket) {
  const dialogue = new Dialogue();
  let held = Buffer.alloc(0);
  for await (const chunk of socket) {
    held = Buffer.concat([held, chunk]);
    while (held.length >= HEADER_BYTES) {
      const end = HEADER_BYTES + held.readUInt32LE(0);
      if (end > MOST_BYTES) throw new Error("a frame is longer than any may be");
      if (held.length < end) break;
      const answer = await dialogue.answer(held.readUInt8(4), held.toString("utf8", HEADER_BYTES, end));
      held = held.subarray(end);
      socket.write(answer);
    }
  }
}

createServer((socket) => {
  serve(socket).catch((error) => {
    console.error(`snowmelt: ${error.message}`);
    socket.destroy();
  });
}).listen({ fd: Number(process.env.SNOWMELT_CHANNEL_FD ?? 3) });
