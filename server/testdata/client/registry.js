// Uses a server as a schema registry by two clients that others wrote for Confluent's: registers, looks up, checks,
// sets and deletes, and reads and writes records in each format: each client what the other and the server wrote.
// `make test-clients` runs it with the node's address.
"use strict";

const assert = require("node:assert/strict");
const kafkajs = require("@kafkajs/confluent-schema-registry");
const confluent = require("@confluentinc/schemaregistry");
const protobuf = require("@bufbuild/protobuf");
const wkt = require("@bufbuild/protobuf/wkt");

const url = process.argv[2];

const formats = {
  avro: {
    type: "AVRO",
    media: "application/vnd.kafka.avro.v2+json",
    shared: '{"type":"record","name":"Place","namespace":"shop","fields":[{"name":"city","type":"string"}]}',
    name: "shop.Place",
    schema: JSON.stringify({
      type: "record", name: "Parcel", namespace: "shop", fields: [
        { name: "id", type: "int" }, { name: "to", type: "shop.Place" },
        { name: "weight", type: "double" }, { name: "tags", type: { type: "array", items: "string" } },
      ],
    }),
    added: (s) => s.replace('"fields":[', '"fields":[{"name":"note","type":"string","default":""},'),
    broken: (s) => s.replace('"fields":[', '"fields":[{"name":"note","type":"string"},'),
    serializer: confluent.AvroSerializer,
    deserializer: confluent.AvroDeserializer,
  },
  jsonschema: {
    type: "JSON",
    media: "application/vnd.kafka.jsonschema.v2+json",
    shared: JSON.stringify({
      $id: "http://shop/place.json", type: "object", properties: { city: { type: "string" } }, required: ["city"],
    }),
    name: "http://shop/place.json",
    schema: JSON.stringify({
      $id: "http://shop/parcel.json", title: "Parcel", type: "object", additionalProperties: false, required: ["id"],
      properties: {
        id: { type: "integer" }, to: { $ref: "http://shop/place.json" }, weight: { type: "number" },
        tags: { type: "array", items: { type: "string" } },
      },
    }),
    added: (s) => s.replace('"properties":{', '"properties":{"note":{"type":"string"},'),
    broken: (s) => s.replace('"integer"', '"string"'),
    serializer: confluent.JsonSerializer,
    deserializer: confluent.JsonDeserializer,
  },
  protobuf: {
    type: "PROTOBUF",
    media: "application/vnd.kafka.protobuf.v2+json",
    shared: 'syntax = "proto3"; package shop; message Place { string city = 1; }',
    name: "place.proto",
    schema: 'syntax = "proto3"; package shop; import "place.proto"; message Parcel { int32 id = 1; Place to = 2; ' +
      "double weight = 3; repeated string tags = 4; }",
    added: (s) => s.replace("int32 id = 1;", "int32 id = 1; string note = 9;"),
    broken: (s) => s.replace("int32 id", "string id"),
    serializer: confluent.ProtobufSerializer,
    deserializer: confluent.ProtobufDeserializer,
  },
};

const parcel = { id: 7, to: { city: "Oslo" }, weight: 2.5, tags: ["fragile", "blå"] };

// plain is a decoded value without its class.
const plain = (v) => JSON.parse(JSON.stringify(v, (name, part) => (name.startsWith("$") ? undefined : part)));

async function call(method, path, body, type = "application/json") {
  const answer = await fetch(url + path, {
    method, headers: { "Content-Type": type },
    body: body === undefined || Buffer.isBuffer(body) ? body : JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, body: text && JSON.parse(text) };
}

async function must(method, path, body, type) {
  const answer = await call(method, path, body, type);
  assert(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

const createTopic = (name, configs = {}) => must("POST", "/v1/topics", { name, partitions: 1, configs });

// read is the bytes and headers of the last record of a topic.
async function read(topic) {
  const page = await must("GET", `/v1/topics/${topic}/records?format=base64`);
  const last = page.records.at(-1);
  const headers = {};
  for (const h of last.headers ?? []) {
    headers[h.name] = Buffer.from(h.value_base64 ?? h.value, h.value_base64 === undefined ? "utf8" : "base64");
  }
  return { bytes: Buffer.from(last.value_base64, "base64"), headers };
}

// refused checks that a client is told a status and a code of the registry.
const refused = (promise, status, code) => assert.rejects(promise, (e) => {
  assert.equal(e.status, status, String(e));
  if (e.errorCode !== undefined) assert.equal(e.errorCode, code, String(e));
  return true;
});

// written is the parcel as a client's serializer takes it, and what that needs to know of it: of Protobuf a message, of
// files as generated code has them, made of what the registry serialises.
async function written(format, client) {
  if (format !== "protobuf") return { message: parcel, conf: {} };
  const files = [];
  for (const [name, subject] of [["place.proto", "protobuf-value-place"], ["parcel.proto", "protobuf-value"]]) {
    const { schema } = await client.getLatestSchemaMetadata(subject, "serialized");
    const file = protobuf.fromBinary(wkt.FileDescriptorProtoSchema, Buffer.from(schema, "base64"));
    file.name = name;
    files.push(file);
  }
  const types = protobuf.createFileRegistry(protobuf.create(wkt.FileDescriptorSetSchema, { file: files }));
  const registry = protobuf.createMutableRegistry(...types);
  return { message: protobuf.create(registry.getMessage("shop.Parcel"), parcel), conf: { registry } };
}

// schemas goes through a subject's life: registering, asking, checking and settings.
async function schemas(format, first, second) {
  const f = formats[format];
  const subject = `${format}-value`;
  const place = `${subject}-place`;
  const opts = { subject, compatibility: kafkajs.COMPATIBILITY.BACKWARD };
  await first.register({ type: f.type, schema: f.shared }, { ...opts, subject: place });
  const references = [{ name: f.name, subject: place, version: 1 }];
  const { id } = await first.register({ type: f.type, schema: f.schema, references }, opts);
  const info = { schemaType: f.type, schema: f.schema, references };

  assert.equal(await first.getLatestSchemaId(subject), id);
  assert.equal(await first.getRegistryId(subject, 1), id);
  assert.equal(await second.register(subject, info), id);
  assert.equal(await second.getId(subject, info), id);
  assert.equal(await second.getVersion(subject, info), 1);
  const full = await second.registerFullResponse(subject, { ...info, metadata: { properties: { owner: "shop" } } });
  assert.equal(full.version, 2);
  assert.notEqual(full.id, id);
  const latest = await second.getLatestSchemaMetadata(subject);
  assert.deepEqual([latest.id, latest.version, latest.schemaType], [full.id, 2, f.type]);
  assert.equal((await second.getLatestWithMetadata(subject, { owner: "shop" })).version, 2);
  assert.deepEqual((await second.getBySubjectAndId(subject, id)).references, references);
  assert.equal((await second.getByGuid(latest.guid)).schema, latest.schema);
  assert.deepEqual(await second.getAllVersions(subject), [1, 2]);
  assert((await second.getAllSubjects()).includes(subject));

  assert.equal(await second.testSubjectCompatibility(subject, { ...info, schema: f.added(f.schema) }), true);
  assert.equal(await second.testCompatibility(subject, 1, { ...info, schema: f.broken(f.schema) }), false);
  await refused(second.register(subject, { ...info, schema: f.broken(f.schema) }), 409, 40901);
  await refused(second.register(subject, { schemaType: f.type, schema: "{" }), 422, 42201);
  await refused(first.register({ type: f.type, schema: f.schema, references }, { ...opts, compatibility: "FULL" }),
    undefined);
  assert.equal(await second.getCompatibility(subject), "BACKWARD");
  assert.equal(await second.updateCompatibility(subject, "NONE"), "NONE");
  assert.equal((await second.getConfig(subject)).compatibilityLevel, "NONE");
  for (const normalize of [true, false]) {
    assert.equal((await second.updateConfig(subject, { normalize })).normalize, normalize);
    assert.equal((await second.getConfig(subject)).normalize, normalize);
  }
  await refused(second.updateCompatibility(subject, "SIDEWAYS"), 422, 42203);
  await refused(second.getSchemaMetadata(subject, 9), 404, 40402);
  await refused(second.getBySubjectAndId(subject, 4711), 404, 40403);
  await refused(second.getLatestSchemaMetadata("nobody"), 404, 40401);
  await refused(second.deleteSubjectVersion(place, 1, false), 422, 42206);
  return { id, guid: latest.guid, info };
}

// removal ends a subject's life, in a mode that forbids it and in one that does not.
async function removal(format, second, info) {
  const subject = `${format}-value`;
  await must("PUT", `/mode/${subject}`, { mode: "READONLY" });
  await refused(second.deleteSubject(subject, false), 422, 42205);
  assert.equal(await second.register(subject, info), (await second.getSchemaMetadata(subject, 1)).id);
  await refused(second.register(subject, { ...info, metadata: { properties: { owner: "nobody" } } }), 422, 42205);
  await must("DELETE", `/mode/${subject}`);
  await refused(second.deleteSubject(subject, true), 404, 40405);
  assert.equal(await second.deleteSubjectVersion(subject, 2, false), 2);
  assert.equal((await second.getSchemaMetadata(subject, 2, true)).version, 2);
  assert.deepEqual(await second.deleteSubject(subject, false), [1]);
  assert.deepEqual(await second.deleteSubject(subject, true), [1, 2]);
  await refused(second.getAllVersions(subject), 404, 40401);
}

// records writes by each way and reads by each client.
async function records(format, first, second, made) {
  const f = formats[format];
  const topic = format;
  const { message, conf } = await written(format, second);
  conf.useSchemaId = made.id;
  const reader = new f.deserializer(second, confluent.SerdeType.VALUE, {});
  const writer = new f.serializer(second, confluent.SerdeType.VALUE, conf);
  const inHeader = new f.serializer(second, confluent.SerdeType.VALUE, {
    ...conf, schemaIdSerializer: confluent.HeaderSchemaIdSerializer,
  });
  const check = async (by) => {
    const { bytes, headers } = await read(topic);
    assert.deepEqual(plain(await reader.deserialize(topic, bytes, headers)), parcel, by);
    if (Object.keys(headers).length === 0) assert.deepEqual(plain(await first.decode(bytes)), parcel, by);
  };
  const native = `/v1/topics/${topic}/records`;
  const { data: [{ cluster_id: cluster }] } = await must("GET", "/v3/clusters");
  const bytes = await writer.serialize(topic, message);

  await must("POST", native, bytes, "application/octet-stream");
  await check("one client, as bytes");
  const v3 = async (value) => {
    const receipt = await must("POST", `/v3/clusters/${cluster}/topics/${topic}/records`, { value });
    assert.equal(receipt.error_code, 200, JSON.stringify(receipt));
  };
  await v3({ type: "BINARY", data: bytes.toString("base64") });
  await check("one client, as base64");
  if (format !== "protobuf") { // that client leaves Protobuf's message indexes out
    await must("POST", native, await first.encode(made.id, parcel), "application/octet-stream");
    await check("the other client");
  }
  const headers = {};
  const bare = await inHeader.serialize(topic, message, headers);
  await must("POST", native, {
    value_base64: bare.toString("base64"),
    headers: Object.entries(headers).map(([name, v]) => ({ name, value_base64: v.toString("base64") })),
  }, "application/vnd.millrace.records+ndjson");
  await check("a header");

  const body = { value_schema_id: made.id, records: [{ value: parcel }] };
  const sent = await must("POST", `/topics/${topic}`, body, f.media);
  assert.equal(sent.offsets[0].error_code, null, JSON.stringify(sent));
  await check("the server, version 2");
  await v3({ schema_version: 1, data: parcel });
  await check("the server, version 3");
  await must("POST", `${native}?value_schema_id=${made.id}`, parcel);
  await check("the server");

  const wrong = Buffer.concat([bytes.subarray(0, 5), Buffer.from([0x00, 0xff, 0xff])]);
  for (const bad of [Buffer.from("{}"), wrong]) {
    const answer = await call("POST", native, bad, "application/octet-stream");
    assert.deepEqual([answer.status, answer.body.title], [400, "A record was refused"], JSON.stringify(answer));
  }
}

// itself has a client register what it writes, in a topic of its own, and write by the latest version.
async function itself(format, second) {
  const f = formats[format];
  const topic = `${format}-itself`;
  const { message, conf } = await written(format, second);
  await createTopic(topic, { "value.schema.validation": "true" });
  const reader = new f.deserializer(second, confluent.SerdeType.VALUE, {});
  for (const how of [{ autoRegisterSchemas: true }, { useLatestVersion: true }]) {
    const writer = new f.serializer(second, confluent.SerdeType.VALUE, { ...conf, ...how });
    const bytes = await writer.serialize(topic, message);
    await must("POST", `/v1/topics/${topic}/records`, bytes, "application/octet-stream");
    const { bytes: stored } = await read(topic);
    assert.deepEqual(plain(await reader.deserialize(topic, stored)), parcel);
    second.clearCaches();
  }
}

// shown reads all records of a topic decoded by their schemas: through an instance, and as a page.
async function shown(format, wanted) {
  const f = formats[format];
  const type = "application/vnd.kafka.v2+json";
  const { base_uri: base } = await must("POST", `/consumers/${format}`,
    { name: "reader", format, "auto.offset.reset": "earliest" }, type);
  const path = new URL(base).pathname;
  await must("POST", `${path}/subscription`, { topics: [format] }, type);
  const seen = [];
  for (let tries = 0; seen.length < wanted && tries < 50; tries++) {
    const answer = await fetch(`${url}${path}/records?timeout=1000`, { headers: { Accept: f.media } });
    seen.push(...await answer.json());
  }
  const { records: page } = await must("GET", `/v1/topics/${format}/records?format=${format}`);
  for (const list of [seen, page]) {
    assert.equal(list.length, wanted);
    for (const r of list) assert.deepEqual(r.value, parcel);
  }
  await must("DELETE", path);
}

async function main() {
  const first = new kafkajs.SchemaRegistry({ host: url });
  const second = confluent.SchemaRegistryClient.newClient({ baseURLs: [url], maxRetries: 0 });
  for (const format of Object.keys(formats)) {
    const made = await schemas(format, first, second);
    second.clearCaches(); // they forget in which form a schema was asked for
    await createTopic(format, { "value.schema.validation": "true" });
    await records(format, first, second, made);
    await shown(format, format === "protobuf" ? 6 : 7);
    await itself(format, second);
    second.clearCaches();
    await removal(format, second, made.info);
  }
  assert.equal(await second.getDefaultCompatibility(), "BACKWARD");
  assert.equal(await second.updateDefaultCompatibility("FULL"), "FULL");
  assert.equal((await second.getDefaultConfig()).compatibilityLevel, "FULL");
}

main().then(() => process.exit(0), (e) => {
  console.error(e);
  process.exit(1);
});
