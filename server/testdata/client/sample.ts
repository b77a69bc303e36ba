// A client whose requests and answers have the types that openapi-typescript makes of openapi.yaml. `make test-clients`
// checks the types; nothing runs this file.

import type { components, paths } from "./api";

type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } } ? B : never;
type Answer<O, S extends number> = O extends { responses: Record<S, { content: { "application/json": infer B } }> } ? B : never;

const base = "http://127.0.0.1:8082";

export class Refused extends Error {
  constructor(readonly problem: components["schemas"]["Problem"]) {
    super(`${problem.type}: ${problem.detail}`);
  }
}

async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const r = await fetch(base + path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: body === undefined ? null : JSON.stringify(body),
  });
  if (!r.ok) {
    throw new Refused((await r.json()) as components["schemas"]["Problem"]);
  }
  return (await r.json()) as T;
}

type CreateTopic = paths["/v1/topics"]["post"];
type Produce = paths["/v1/topics/{topic}/records"]["post"];
type Read = paths["/v1/topics/{topic}/records"]["get"];
type KafkaTopics = paths["/v3/clusters/{cluster_id}/topics"]["get"];

export async function tour(cluster: string): Promise<string[]> {
  const wanted: Body<CreateTopic> = { name: "orders", partitions: 3, configs: { "retention.ms": null } };
  const made: Answer<CreateTopic, 201> = await call("POST", "/v1/topics", wanted);
  const record: Body<Produce> = { order: 1, total: "12.50" };
  const stored: Answer<Produce, 200> = await call("POST", `/v1/topics/${made.name}/records`, record);
  const full: components["schemas"]["RecordsBody"] = [{ key_text: "a", value: [1], headers: [{ name: "h", value: "v" }] }];
  console.log(full.length);
  for (const o of stored.offsets) {
    const offset: number | null = o.base_offset;
    console.log(o.partition, offset, o.duplicate ?? false);
  }
  const page: Answer<Read, 200> = await call("GET", `/v1/topics/${made.name}/records?offset=earliest`);
  for (const r of page.records) {
    console.log(r.offset, r.key ?? r.key_text ?? r.key_base64, r.value, page.high_watermarks[String(r.partition)]);
  }
  const topics: Answer<KafkaTopics, 200> = await call("GET", `/v3/clusters/${cluster}/topics`);
  return topics.data.map((t) => t.topic_name);
}

// What the types refuse.

// @ts-expect-error: a topic has a name.
export const nameless: Body<CreateTopic> = { partitions: 3 };

// @ts-expect-error: a count is a number.
export const texty: Body<CreateTopic> = { name: "orders", partitions: "3" };

export const acks: components["schemas"]["Acks"][] = ["all", "1", "0"];

// @ts-expect-error: there is no such level.
export const most: components["schemas"]["Acks"] = "most";
