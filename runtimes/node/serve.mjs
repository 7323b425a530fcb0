// Runs a user's handler in JavaScript: `serve.mjs MODULE`; docs/reference/runtimes.md has the dialogue.
//
// Node.js cannot fork, so an instance is executed, loaded and paused before it is needed. Invariant:
// what comes over one connection ends at most that connection, and each call gets exactly one
// answer.

import { statfsSync } from "node:fs";
import { createServer } from "node:net";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

const [LOAD, READY, CALL, RETURN, FAILURE, , , END] = [1, 2, 3, 4, 5, 6, 7, 8];
const HEADER_BYTES = 8;
const MAX_BYTES = 256 << 20;
// The longest answer that the platform takes.
const MAX_ANSWER_BYTES = 64 << 20;
const [TEXT_CHARACTERS, INPUT_CHARACTERS, FRAMES] = [2000, 200, 20];
const CODE = `${process.env.SNOWMELT_CODE}/`;
// What the sandbox's limits look like from inside.
const LIMITS = { ENOSPC: "scratch", EMFILE: "files", EAGAIN: "processes" };

const MODULE = process.argv[2];
let module;

/** What the module exports; it is evaluated once however many connections ask. */
async function exported(name) {
  const exports = await (module ??= import(pathToFileURL(MODULE).href));
  // A CommonJS module is one value, which has the names.
  return exports[name] ?? exports.default?.[name] ?? (name === "handler" ? exports.default : undefined);
}

function frame(kind, text) {
  const payload = Buffer.from(text);
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32LE(payload.length, 0);
  header.writeUInt8(kind, 4);
  return Buffer.concat([header, payload]);
}

const shortened = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

/** `TypeError: no`, whatever was thrown. */
function line(error) {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${String(error)}`;
  return shortened(text.replace(/\s+/g, " "), TEXT_CHARACTERS);
}

/** The user's own frames, the innermost first; those of the runtime and of Node.js are not shown. */
function frames(error) {
  const found = [];
  for (const text of String(error?.stack ?? "").split("\n")) {
    const at = /^\s+at (?:(.*?) \()?(?:file:\/\/)?([^\s()]+):(\d+):\d+\)?$/.exec(text);
    if (at?.[2].startsWith(CODE) && found.length < FRAMES) {
      found.push({ file: at[2].slice(CODE.length), line: Number(at[3]), within: `${at[1] ?? "module"}()` });
    }
  }
  return found;
}

function failure(kind, name, error, more = {}) {
  const found = frames(error);
  const traceback = found.map(({ file, line, within }) => `${file}:${line} in ${within}`);
  traceback.push(line(error));
  if (error?.cause) traceback.push(`caused by ${line(error.cause)}`);
  const limit = kind === "raised" ? LIMITS[error?.code] : undefined;
  const message = { kind: limit ?? kind, function: name, exception: line(error), traceback, failed: 1, calls: 1 };
  if (limit === "scratch") Object.assign(message, scratch());
  if (found.length > 0) message.location = found[0];
  return frame(FAILURE, JSON.stringify({ ...message, ...more }));
}

/** How full the scratch is. */
function scratch() {
  const { bsize, blocks, bfree } = statfsSync("/tmp");
  return { limit: blocks * bsize, peak: (blocks - bfree) * bsize };
}

/** A value as JSON; nothing at all is null. */
function written(value) {
  const text = JSON.stringify(value === undefined ? null : value);
  if (text === undefined) throw new TypeError(`a ${typeof value} is not JSON`);
  if (Buffer.byteLength(text) > MAX_ANSWER_BYTES) throw new TypeError(`the answer has more than ${MAX_ANSWER_BYTES} bytes`);
  return text;
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

  async #load({ function: name }) {
    this.#name = name;
    try {
      this.#handler = await exported(name);
    } catch (error) {
      return failure("load", name, error);
    }
    if (typeof this.#handler === "function") return frame(READY, JSON.stringify({ pid: process.pid }));
    const exports = Object.keys(await module).join(", ") || "nothing";
    return failure("load", name, new Error(`${basename(MODULE)} exports no function ${name}: it exports ${exports}`));
  }

  async #call({ event }) {
    const input = `event = ${shortened(JSON.stringify(event), INPUT_CHARACTERS)}`;
    let value;
    try {
      value = await this.#handler(event);
    } catch (error) {
      return failure("raised", this.#name, error, { input });
    }
    try {
      return frame(RETURN, written(value));
    } catch (error) {
      return failure("type", this.#name, error, { input });
    }
  }
}

async function serve(socket) {
  const dialogue = new Dialogue();
  let [held, bytes] = [[], 0];
  let due = HEADER_BYTES;
  for await (const chunk of socket) {
    held.push(chunk);
    bytes += chunk.length;
    while (bytes >= due) {
      const all = held.length === 1 ? held[0] : Buffer.concat(held);
      const end = HEADER_BYTES + all.readUInt32LE(0);
      if (end - HEADER_BYTES > MAX_BYTES) throw new Error("a frame is longer than any may be");
      [held, due] = [[all], end];
      if (bytes < end) break;
      const kind = all.readUInt8(4);
      if (kind === END) return socket.end();
      socket.write(await dialogue.answer(kind, all.toString("utf8", HEADER_BYTES, end)));
      [held, bytes, due] = [[all.subarray(end)], bytes - end, HEADER_BYTES];
    }
  }
}

// A promise that nobody waits for hurts no call.
process.on("unhandledRejection", (error) => console.error("unhandled rejection:", error));

createServer((socket) => {
  socket.on("error", () => {});
  serve(socket).catch((error) => {
    console.error(`snowmelt: ${error.message}`);
    socket.destroy();
  });
}).listen({ fd: Number(process.env.SNOWMELT_CHANNEL_FD ?? 3) });
