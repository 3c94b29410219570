// A client of three servers for a browser, a phone's web view or Node 20: WebCrypto and nothing else.
//
//   import { report } from "./report.mjs";
//   await report(counts, { plan, period, servers, addresses, storage: localStorage });
//
// Written from docs/reference/report-message.md (suite x25519 only). `counts` is the vector of the
// plan: whole numbers, as Number or BigInt. It leaves the device only as shares, of which any single
// one is random. HPKE (RFC 9180) stands here as base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
// AES-256-GCM, one message.

const PRIME = (1n << 61n) - 1n;
const LARGEST = PRIME / 2n; // entries beyond stand for negative numbers
const SPARE = 8; // words for those that are left out: each is with probability 2^-61
const SEAL = "fedprikl/report/1/seal/";
const SIGN = "fedprikl/report/1/sign/";
const KEM = new Uint8Array([0x4b, 0x45, 0x4d, 0, 0x20]); // "KEM", X25519
const HPKE = new Uint8Array([0x48, 0x50, 0x4b, 0x45, 0, 0x20, 0, 1, 0, 2]); // "HPKE", the suite
const PKCS8 = "302e020100300506032b656e04220420"; // what stands before a private key of X25519
const LATER = [404, 408, 425, 429]; // no such plan or period yet; too slow, too early, too often
const DONE = "done";
const BASE = new Uint8Array([9, ...new Uint8Array(31)]);

const subtle = globalThis.crypto.subtle;

export class RefusedError extends Error {} // a server will not take the report: do not try again
export class UnreachableError extends Error {} // try again later: the same bytes are sent

// Bytes

function joined(...parts) {
  const all = parts.map((part) => (typeof part === "string" ? new TextEncoder().encode(part) : part));
  const out = new Uint8Array(all.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of all) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

export function fromHex(text) {
  if (!/^([0-9a-f]{2})*$/.test(text)) throw new TypeError("Not hexadecimal digits in lower case.");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function randomBytes(size) {
  return globalThis.crypto.getRandomValues(new Uint8Array(size));
}

// Shares on lines over the integers modulo 2^61 - 1

function toNumbers(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / 8 }, (_, i) => view.getBigUint64(8 * i, true));
}

function toBytes(numbers) {
  const view = new DataView(new ArrayBuffer(8 * numbers.length));
  numbers.forEach((number, i) => view.setBigUint64(8 * i, number, true));
  return new Uint8Array(view.buffer);
}

export async function expand(seed, entries) {
  const key = await subtle.importKey("raw", seed, "AES-CTR", false, ["encrypt"]);
  const start = { name: "AES-CTR", counter: new Uint8Array(16), length: 128 };
  const words = await subtle.encrypt(start, key, new Uint8Array(8 * (entries + SPARE)));
  const drawn = toNumbers(new Uint8Array(words)).map((word) => word & PRIME);
  return drawn.filter((word) => word !== PRIME).slice(0, entries);
}

export async function shareBytes(counts, seed, mask) {
  const entries = Array.from(counts, (count) => BigInt(count)); // not a whole number: RangeError
  if (entries.some((entry) => entry > LARGEST || entry < -LARGEST)) {
    throw new RangeError("A number is too large to be shared among three servers.");
  }
  entries.push(...(await expand(mask, 1)));
  const random = await expand(seed, entries.length);
  const share = (i) =>
    toBytes(entries.map((entry, at) => {
      const height = (entry + i * (random[at] - entry)) % PRIME;
      return height < 0n ? height + PRIME : height;
    }));
  return [seed, share(2n), share(3n)];
}

// HPKE

async function hmac(key, data) {
  const found = key.length ? key : new Uint8Array(32); // the same, but an empty key is refused
  const made = await subtle.importKey("raw", found, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await subtle.sign("HMAC", made, data));
}

function extract(suite, salt, label, secret) {
  return hmac(salt, joined("HPKE-v1", suite, label, secret));
}

async function expandKey(suite, key, label, info, size) {
  const labelled = joined(new Uint8Array([0, size]), "HPKE-v1", suite, label, info, new Uint8Array([1]));
  return (await hmac(key, labelled)).slice(0, size); // at most 32 bytes: one block is enough
}

async function exchange(privateKey, publicBytes) {
  const other = await subtle.importKey("raw", publicBytes, { name: "X25519" }, false, []);
  const bits = await subtle.deriveBits({ name: "X25519", public: other }, privateKey, 256);
  const shared = new Uint8Array(bits);
  if (shared.every((byte) => byte === 0)) throw new TypeError("A key of low order.");
  return shared;
}

export async function seal(text, publicBytes, info, coins) {
  const none = new Uint8Array(0);
  const pkcs8 = joined(fromHex(PKCS8), coins);
  const one = await subtle.importKey("pkcs8", pkcs8, { name: "X25519" }, false, ["deriveBits"]);
  const sent = await exchange(one, BASE); // the public key of `one`
  const agreed = await extract(KEM, none, "eae_prk", await exchange(one, publicBytes));
  const shared = await expandKey(KEM, agreed, "shared_secret", joined(sent, publicBytes), 32);
  const context = joined(
    new Uint8Array([0]), // base mode
    await extract(HPKE, none, "psk_id_hash", none),
    await extract(HPKE, none, "info_hash", info),
  );
  const secret = await extract(HPKE, shared, "secret", none);
  const nonce = await expandKey(HPKE, secret, "base_nonce", context, 12);
  const raw = await expandKey(HPKE, secret, "key", context, 32);
  const key = await subtle.importKey("raw", raw, "AES-GCM", false, ["encrypt"]);
  return joined(sent, new Uint8Array(await subtle.encrypt({ name: "AES-GCM", iv: nonce }, key, text)));
}

// Messages

function header({ plan, period, server, reportId, identity }) {
  const view = new DataView(new ArrayBuffer(12));
  [0x46, 0x50, 0x52, 1, 1, server, identity ? 1 : 0, 0].forEach((byte, i) => view.setUint8(i, byte));
  view.setUint32(8, period, true);
  return joined(new Uint8Array(view.buffer), plan, reportId, identity ? identity.publicBytes : "");
}

// The messages to servers 1, 2 and 3. To send a report again, send the same bytes.
//   plan      fingerprint of the plan, 64 hexadecimal digits
//   period    0, 1, ... below 2^32
//   servers   three public keys of X25519, in hexadecimal digits
//   identity  with a roster: { privateKey: a CryptoKey of Ed25519, publicBytes: its public key }
//   random    gives so many random bytes; tests pass their own
export async function makeReports(counts, { plan, period, servers, identity, random = randomBytes }) {
  const fingerprint = fromHex(plan);
  const keys = servers.map(fromHex);
  if (fingerprint.length !== 32 || keys.length !== 3 || keys.some((key) => key.length !== 32)) {
    throw new TypeError("A report needs the fingerprint of a plan and three public keys of X25519.");
  }
  if (!Number.isInteger(period) || period < 0 || period >= 2 ** 32) {
    throw new RangeError("A period is a whole number from 0, below 2^32.");
  }
  const reportId = random(16);
  const shares = await shareBytes(counts, random(32), random(32));
  const messages = [];
  for (const [i, share] of shares.entries()) {
    const head = header({ plan: fingerprint, period, server: i + 1, reportId, identity });
    const sealed = await seal(share, keys[i], joined(SEAL, head), random(32));
    messages.push(joined(head, sealed, await signature(identity, head, sealed)));
  }
  return messages;
}

async function signature(identity, head, sealed) {
  if (!identity) return new Uint8Array(0);
  const hash = new Uint8Array(await subtle.digest("SHA-256", sealed));
  const body = joined(SIGN, head, hash);
  return new Uint8Array(await subtle.sign({ name: "Ed25519" }, identity.privateKey, body));
}

// Sending

function wait(seconds) {
  return new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
}

// Sends one message until the server has it. Delays double from `delay` seconds, with random parts,
// so that clients that were cut off together do not come back together.
async function deliver(address, message, { attempts = 6, delay = 1, fetch = globalThis.fetch }) {
  let why = "";
  for (let attempt = 0; attempt < attempts; attempt++) {
    let pause = delay * 2 ** attempt * (0.5 + Math.random());
    try {
      // Bytes without a type: browsers then ask no permission first. No cookies are sent along.
      const options = { method: "POST", body: message, credentials: "omit", redirect: "error" };
      const answer = await fetch(`${address}/v1/reports`, options);
      const said = await answer.json().catch(() => ({}));
      if (answer.status === 200 && said.accepted === true) return;
      why = said.error ?? `status ${answer.status}`;
      if (answer.status >= 400 && answer.status < 500 && !LATER.includes(answer.status)) {
        throw new RefusedError(`${address} refused the report: ${why}`);
      }
      const asked = Number(answer.headers.get("retry-after"));
      if (asked > 0) pause = Math.max(pause, Math.min(asked, 300));
    } catch (error) {
      if (error instanceof RefusedError) throw error;
      why = why || error.message;
    }
    if (attempt + 1 < attempts) await wait(pause);
  }
  throw new UnreachableError(`${address} did not take the report: ${why}. Try again later.`);
}

// Makes a report and sends it, once for a plan and period: a second call sends the same bytes, and
// other counts of the second call are not used. `storage` is localStorage, or anything with getItem
// and setItem; it keeps sealed bytes until all servers have them, and then that they have. Resolves
// when all three servers have the report.
export function report(counts, options) {
  const name = `fedprikl/report/${options.plan}/${options.period}`;
  const locks = globalThis.navigator?.locks; // of two tabs, one makes the report
  const work = () => reportOnce(name, counts, options);
  return locks ? locks.request(name, work) : work();
}

async function reportOnce(name, counts, options) {
  const { addresses, storage } = options;
  if (addresses.length !== 3 || addresses.some((each) => !each.startsWith("https://"))) {
    throw new TypeError("A report goes to three https addresses.");
  }
  let kept = storage.getItem(name);
  if (kept === DONE) return;
  if (kept === null) {
    kept = JSON.stringify((await makeReports(counts, options)).map(toHex));
    storage.setItem(name, kept);
  }
  const messages = JSON.parse(kept).map(fromHex);
  const sent = messages.map((message, i) => deliver(addresses[i].replace(/\/$/, ""), message, options));
  const failed = (await Promise.allSettled(sent)).filter((each) => each.status === "rejected");
  const refused = failed.find((each) => each.reason instanceof RefusedError);
  if (failed.length) throw (refused ?? failed[0]).reason;
  storage.setItem(name, DONE);
}
