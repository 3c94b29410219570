// The messages of a test vector (vectors/report/*.json, suite x25519), made anew from what was random
// in it: byte for byte those of the vector. Runs in Node and in browsers.

import { fromHex, makeReports, toHex } from "./report.mjs";

const PKCS8 = "302e020100300506032b657004220420"; // what stands before a private key of Ed25519

async function identityOf(secret) {
  if (!secret) return undefined;
  const pkcs8 = fromHex(PKCS8 + secret);
  const privateKey = await crypto.subtle.importKey("pkcs8", pkcs8, { name: "Ed25519" }, true, ["sign"]);
  const { x } = await crypto.subtle.exportKey("jwk", privateKey);
  const text = atob(x.replaceAll("-", "+").replaceAll("_", "/"));
  return { privateKey, publicBytes: Uint8Array.from(text, (letter) => letter.charCodeAt(0)) };
}

export async function messagesOf(vector) {
  const coins = vector.servers.map((server) => server.coins);
  const drawn = [vector.report_id, vector.seed, vector.mask, ...coins].map(fromHex);
  const messages = await makeReports(vector.counts, {
    plan: vector.plan,
    period: vector.period,
    servers: vector.servers.map((server) => server.public),
    identity: await identityOf(vector.identity),
    random: () => drawn.shift(),
  });
  return messages.map(toHex);
}
