// A function to begin with: snowmelt fn deploy hello handler.mjs
export function handler(event) {
  return { hello: event.name ?? "world" };
}
